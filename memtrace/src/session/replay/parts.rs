//! Parts of a recording in which the changes of live memory are shown. Pure.

use std::ops::Range;
use std::time::Duration;

/// Maximum number of parts. The changes in them take 256 bytes for a stack.
const MOST: u32 = 16;

/// Minimum number of parts for trends.
const FEWEST: usize = 8;

/// Divides `span` into at most [`MOST`] consecutive parts, as equal as the boundaries permit, and returns their ends as
/// indices of `boundaries`. These are in order, and the last one is the end of `span`. Returns no parts if there would
/// be fewer than [`FEWEST`].
pub(super) fn ends(boundaries: &[Duration], span: &Range<Duration>) -> Vec<usize> {
    let whole = span.end.saturating_sub(span.start);
    // Boundaries are not exactly periodic, so a part may end up to a quarter of a part early.
    let is_at_end = |part: u32, boundary: Duration| boundary >= span.start + whole * (4 * part - 1) / (4 * MOST);
    let mut ends = Vec::new();
    let mut part = 1;
    for (index, &boundary) in boundaries.iter().enumerate() {
        let is_last = index + 1 == boundaries.len();
        if is_last
            && let Some(end) = ends.last_mut()
            && boundary.saturating_sub(boundaries[*end]) < whole / (4 * MOST)
        {
            // A run ends with intervals of almost no duration.
            *end = index;
        } else if is_last || part < MOST && is_at_end(part, boundary) {
            ends.push(index);
            while part < MOST && is_at_end(part, boundary) {
                part += 1;
            }
        }
    }
    if ends.len() < FEWEST { Vec::new() } else { ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seconds(seconds: impl IntoIterator<Item = u32>) -> Vec<Duration> {
        seconds.into_iter().map(|second| SECOND * second).collect()
    }

    #[test]
    fn parts_are_nearly_equal() {
        let ends = ends(&seconds(1..=32), &(Duration::ZERO..SECOND * 32));
        assert_eq!(ends, (1..32).step_by(2).collect::<Vec<_>>());
        // The run ends a moment after the last second.
        let mut late = seconds(1..=32);
        late.push(SECOND * 32 + Duration::from_nanos(1));
        let ends = super::ends(&late, &(Duration::ZERO..late[32]));
        assert_eq!(ends, (1..30).step_by(2).chain([32]).collect::<Vec<_>>());
        let ends = super::ends(&late[22..], &(SECOND * 22..late[32]));
        assert_eq!(ends, (0..9).chain([10]).collect::<Vec<_>>());
    }

    #[test]
    fn few_boundaries_are_a_part_each() {
        let span = Duration::ZERO..SECOND * 10;
        assert_eq!(ends(&seconds(1..=10), &span), (0..10).collect::<Vec<_>>());
        assert_eq!(ends(&seconds(4..=10), &span), [0_usize; 0]);
    }

    #[test]
    fn merged_intervals_are_one_part() {
        // Ten minutes in one interval, then seconds.
        let boundaries = seconds([600].into_iter().chain(601..=640));
        assert_eq!(ends(&boundaries, &(Duration::ZERO..SECOND * 640)), [0_usize; 0]);
        let ends = ends(&boundaries, &(SECOND * 590..SECOND * 640));
        assert_eq!(ends.len(), 14);
        assert_eq!(ends[0], 0);
    }

    #[test]
    fn a_window_that_begins_at_its_end_has_no_parts() {
        assert_eq!(ends(&[], &(SECOND..SECOND)), [0_usize; 0]);
        assert_eq!(ends(&seconds([1]), &(SECOND..SECOND)), [0_usize; 0]);
    }
}
