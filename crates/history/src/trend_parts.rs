//! Division of a trace into parts: consecutive time ranges. Reports show the changes of live memory in each part.

use std::ops::Range;
use std::time::Duration;

use memtrace_model::{EventClass, Quantity};

use super::boundaries::{Boundary, IntervalRow};

/// Maximum number of parts. The changes of one stack in this number of parts take 256 bytes.
const MOST: u32 = 16;

/// Minimum number of parts for trends.
const FEWEST: usize = 8;

/// Consecutive parts between two boundaries.
#[derive(Debug, Default)]
pub struct TrendParts {
    bounds: Vec<Boundary>,
    times: Vec<Range<Duration>>,
}

impl TrendParts {
    /// Divides the time between the boundaries `from` and `to`. `start`: start of tracing. `end`: end of tracing,
    /// if it has ended. If there are too few intervals, there are no parts.
    pub fn between(
        intervals: &[IntervalRow],
        from: Boundary,
        to: Boundary,
        start: Duration,
        end: Option<Duration>,
    ) -> Self {
        let intervals = intervals.iter().map(IntervalRow::end);
        let boundaries: Vec<_> = intervals.filter(|end| *end > from && *end <= to).collect();
        let times: Vec<_> = boundaries.iter().map(|boundary| boundary.at()).collect();
        let span = from.at().max(start)..end.map_or(to.at(), |end| to.at().min(end)).max(start);
        // Intervals can begin before the start of tracing, and end after its end.
        let times: Vec<_> = times.into_iter().map(|time| time.min(span.end).max(span.start)).collect();
        let ends = ends_of_parts(&times, &span);
        let bounds: Vec<_> = [span.start].into_iter().chain(ends.iter().map(|&index| times[index])).collect();
        let times =
            bounds.windows(2).map(|part| part[0].saturating_sub(start)..part[1].saturating_sub(start)).collect();
        let first = (!ends.is_empty()).then_some(from);
        Self { bounds: first.into_iter().chain(ends.into_iter().map(|index| boundaries[index])).collect(), times }
    }

    /// Returns the start of the first part and the end of each part; empty without parts.
    pub fn bounds(&self) -> &[Boundary] {
        &self.bounds
    }

    /// Returns the times of the parts, since the start of tracing.
    pub fn times(&self) -> &[Range<Duration>] {
        &self.times
    }
}

/// Returns true if reports show changes of live memory over time for this class: for blocks and mappings, but not
/// for pages, because no event reports that a page is gone.
pub fn has_trends(class: EventClass) -> bool {
    Quantity::LiveBytes.is_of(class) && !class.counts_pages()
}

/// Divides `span` into at most [`MOST`] consecutive parts, as equal as the boundaries permit, and returns the ends
/// of the parts as indices of `boundaries`. The boundaries must be in order, and the last one must be the end of
/// `span`. Returns no parts if there would be fewer than [`FEWEST`].
fn ends_of_parts(boundaries: &[Duration], span: &Range<Duration>) -> Vec<usize> {
    let whole = span.end.saturating_sub(span.start);
    // Boundaries are not exactly periodic, so a part may end early, by up to a quarter of its length.
    let is_at_end = |part: u32, boundary: Duration| boundary >= span.start + whole * (4 * part - 1) / (4 * MOST);
    let mut ends = Vec::new();
    let mut part = 1;
    for (index, &boundary) in boundaries.iter().enumerate() {
        let is_last = index + 1 == boundaries.len();
        if is_last
            && let Some(end) = ends.last_mut()
            && boundary.saturating_sub(boundaries[*end]) < whole / (4 * MOST)
        {
            // The last interval of a run can have almost no duration, so it belongs to the previous part.
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
        let ends = ends_of_parts(&seconds(1..=32), &(Duration::ZERO..SECOND * 32));
        assert_eq!(ends, (1..32).step_by(2).collect::<Vec<_>>());
        // The run ends a moment after the last second.
        let mut late = seconds(1..=32);
        late.push(SECOND * 32 + Duration::from_nanos(1));
        let ends = ends_of_parts(&late, &(Duration::ZERO..late[32]));
        assert_eq!(ends, (1..30).step_by(2).chain([32]).collect::<Vec<_>>());
        let ends = ends_of_parts(&late[22..], &(SECOND * 22..late[32]));
        assert_eq!(ends, (0..9).chain([10]).collect::<Vec<_>>());
    }

    #[test]
    fn few_boundaries_are_a_part_each() {
        let span = Duration::ZERO..SECOND * 10;
        assert_eq!(ends_of_parts(&seconds(1..=10), &span), (0..10).collect::<Vec<_>>());
        assert_eq!(ends_of_parts(&seconds(4..=10), &span), [0_usize; 0]);
    }

    #[test]
    fn merged_intervals_are_one_part() {
        // Ten minutes in one interval, then seconds.
        let boundaries = seconds([600].into_iter().chain(601..=640));
        assert_eq!(ends_of_parts(&boundaries, &(Duration::ZERO..SECOND * 640)), [0_usize; 0]);
        let ends = ends_of_parts(&boundaries, &(SECOND * 590..SECOND * 640));
        assert_eq!(ends.len(), 14);
        assert_eq!(ends[0], 0);
    }

    #[test]
    fn a_window_that_begins_at_its_end_has_no_parts() {
        assert_eq!(ends_of_parts(&[], &(SECOND..SECOND)), [0_usize; 0]);
        assert_eq!(ends_of_parts(&seconds([1]), &(SECOND..SECOND)), [0_usize; 0]);
    }
}
