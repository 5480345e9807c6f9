//! Choice of the old intervals that are merged to bound the size of a recording. Pure.

use std::ops::Range;
use std::time::Duration;

/// Lengths of the periods within which intervals are merged.
const LENGTHS: [Duration; 5] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
    Duration::from_secs(24 * 3600),
];

/// Maximum number of intervals that [`forced_merge`] merges at once.
const MAX_FORCED: usize = 16;

/// An interval in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredInterval {
    pub(super) id: i64,
    pub(super) span: Range<Duration>,
    /// Number of original intervals in this one.
    pub(super) merged: u64,
    /// True if the interval ends at a mark. No merge removes this boundary.
    pub(super) is_marked: bool,
}

/// Returns the intervals to merge next: consecutive intervals within the same 10 seconds, minute, ten minutes, hour or
/// day. Their age must be at least the length of this period. Chooses the candidate with the smallest ratio of length
/// to age, because this merge loses the least resolution. Returns `None` if there is no candidate.
pub(super) fn next_merge(intervals: &[StoredInterval]) -> Option<Range<usize>> {
    let now = intervals.last()?.span.end;
    let mut best: Option<(f64, Range<usize>)> = None;
    for length in LENGTHS {
        let mut start = 0;
        while start < intervals.len() {
            let end = end_of_range(intervals, start, length);
            let age = now.saturating_sub(intervals[end - 1].span.end);
            let ratio = length.as_secs_f64() / age.as_secs_f64();
            if end - start > 1 && age >= length && best.as_ref().is_none_or(|(least, _)| ratio < *least) {
                // Later runs of this length are younger, so their ratio is larger.
                best = Some((ratio, start..end));
                break;
            }
            start = end;
        }
    }
    best.map(|(_, run)| run)
}

/// Returns the oldest intervals that can be merged, regardless of their age.
pub(super) fn forced_merge(intervals: &[StoredInterval]) -> Option<Range<usize>> {
    let start = intervals.windows(2).position(|pair| !pair[0].is_marked)?;
    let length = intervals[start..].iter().take(MAX_FORCED).position(|interval| interval.is_marked);
    let end = length.map_or(intervals.len().min(start + MAX_FORCED), |length| start + length + 1);
    Some(start..end)
}

/// Returns the index after the run that begins at `start`. A run consists of the intervals within the same period
/// of `length`, up to the next mark. An interval belongs to the period that contains its middle.
fn end_of_range(intervals: &[StoredInterval], start: usize, length: Duration) -> usize {
    let slot = |interval: &StoredInterval| {
        let middle = (interval.span.start + interval.span.end) / 2;
        middle.as_nanos() / length.as_nanos()
    };
    let first = slot(&intervals[start]);
    let mut end = start + 1;
    while end < intervals.len() && !intervals[end - 1].is_marked && slot(&intervals[end]) == first {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64, marked: &[u64]) -> Vec<StoredInterval> {
        let interval = |second: u64| StoredInterval {
            id: second.cast_signed() + 1,
            span: Duration::from_secs(second)..Duration::from_secs(second + 1),
            merged: 1,
            is_marked: marked.contains(&second),
        };
        (0..number).map(interval).collect()
    }

    fn merge(intervals: &mut Vec<StoredInterval>, run: Range<usize>) {
        let start = intervals[run.start].span.start;
        let last = run.end - 1;
        intervals[last].span.start = start;
        intervals.drain(run.start..last);
    }

    #[test]
    fn oldest_seconds_are_merged_first() {
        assert_eq!(next_merge(&[]), None);
        assert_eq!(next_merge(&seconds(19, &[])), None, "younger than the length");
        assert_eq!(next_merge(&seconds(20, &[])), Some(0..10));
        assert_eq!(next_merge(&seconds(100, &[4])), Some(0..5));
        assert_eq!(next_merge(&seconds(100, &[0, 9])), Some(1..10));
    }

    #[test]
    fn resolution_decreases_with_age() {
        let mut intervals = seconds(3 * 3600, &[]);
        while intervals.len() > 100 {
            let run = next_merge(&intervals).unwrap();
            merge(&mut intervals, run);
        }
        let lengths: Vec<_> =
            intervals.iter().map(|interval| (interval.span.end - interval.span.start).as_secs()).collect();
        assert_eq!(lengths.iter().sum::<u64>(), 3 * 3600);
        assert!(lengths.iter().all(|length| [1, 10, 60, 600, 3600, 86400].contains(length)), "{lengths:?}");
        assert!(lengths.is_sorted_by(|older, newer| older >= newer), "{lengths:?}");
        assert_eq!(lengths[lengths.len() - 1], 1);
    }

    #[test]
    fn forced_merges_keep_marks() {
        let mut intervals = seconds(60, &[10, 11, 50]);
        while let Some(run) = forced_merge(&intervals) {
            assert!(run.len() > 1 && run.len() <= MAX_FORCED, "{run:?}");
            merge(&mut intervals, run);
        }
        let ends: Vec<_> = intervals.iter().map(|interval| interval.span.end.as_secs()).collect();
        assert_eq!(ends, [11, 12, 51, 60]);
    }
}
