//! Knee of a working set profile.

use std::time::Duration;

use memtrace_model::Bytes;

/// Minimum number of points of a curve with a knee.
const FEWEST_POINTS: usize = 4;
/// Minimum distance of a knee from the line, as a share of the value of the last point.
const LEAST_DISTANCE: f64 = 0.1;

/// Returns the index of the knee: the point after which a curve from the origin flattens. The knee has the greatest
/// distance above the line from the origin to the last point (the method of Satopää et al., "Finding a 'Kneedle' in a
/// Haystack", 2011, without smoothing). `None` if the curve has no clear knee.
pub(super) fn knee(points: &[(Duration, Bytes)]) -> Option<usize> {
    let &(last, most) = points.last()?;
    let (width, height) = (last.as_secs_f64(), most.0 as f64);
    if points.len() < FEWEST_POINTS || width <= 0.0 || height <= 0.0 {
        return None;
    }
    let distance = |&(time, bytes): &(Duration, Bytes)| bytes.0 as f64 / height - time.as_secs_f64() / width;
    let distances = points.iter().map(distance).enumerate();
    let (index, farthest) = distances.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (farthest >= LEAST_DISTANCE).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the knee of a curve with these values after 1, 2, 4, 8, … ms.
    fn knee_of(values: &[u64]) -> Option<usize> {
        let point = |(index, &value): (usize, &u64)| (Duration::from_millis(1 << index), Bytes(value));
        knee(&values.iter().enumerate().map(point).collect::<Vec<_>>())
    }

    #[test]
    fn knee_is_where_the_curve_flattens() {
        assert_eq!(knee_of(&[10, 40, 80, 82, 84, 86, 88, 90]), Some(2));
        // A set of pages that is touched all the time, and other pages that are touched once.
        assert_eq!(knee_of(&[260, 261, 281, 282, 284, 288, 296, 312, 344, 408, 536]), Some(2));
    }

    #[test]
    fn curves_without_a_knee_have_none() {
        assert_eq!(knee_of(&[]), None);
        assert_eq!(knee_of(&[1, 5, 5]), None);
        assert_eq!(knee_of(&[0, 0, 0, 0, 0]), None);
        // Growth at a constant rate, and at a rate that increases.
        assert_eq!(knee_of(&[10, 20, 40, 80, 160, 320]), None);
        assert_eq!(knee_of(&[10, 10, 20, 40, 160, 900]), None);
    }
}
