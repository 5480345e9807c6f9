//! Sums of the values of the last period.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Number of slots in a period. Intervals that are shorter than a slot share one.
const SLOTS: u32 = 60;

/// Slots of time that lie in the last period. All subjects of a condition share them.
#[derive(Debug)]
pub(super) struct Timeline {
    /// `None` for sums since the start, which have a single slot.
    period: Option<Duration>,
    slots: VecDeque<Range<Duration>>,
    /// Number of the first slot in `slots`. Slots are numbered from the start of the monitor.
    first: u64,
}

/// Sums of the values of a subject, as pairs of the slot number and the sum. A slot is left out if all of its values
/// are 0.
///
/// A slot that began before the period counts in proportion to its time within the period. The sum is exact if the
/// period is a multiple of the slots' length.
#[derive(Debug, Default)]
pub(super) struct Window(VecDeque<(u64, i64)>);

impl Timeline {
    pub(super) fn new(period: Option<Duration>) -> Self {
        Self { period, slots: VecDeque::new(), first: 0 }
    }

    /// Adds an interval, and removes the slots before the period that ends with it.
    pub(super) fn advance(&mut self, span: &Range<Duration>) {
        let length = self.period.map_or(Duration::MAX, |period| period / SLOTS);
        match self.slots.back_mut() {
            Some(slot) if slot.end.saturating_sub(slot.start) < length => slot.end = span.end,
            _ => self.slots.push_back(span.clone()),
        }
        let start = self.start(span.end);
        while self.slots.len() > 1 && self.slots.front().is_some_and(|slot| slot.end <= start) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Returns the start of the period that ends at `now`.
    fn start(&self, now: Duration) -> Duration {
        self.period.map_or(Duration::ZERO, |period| now.saturating_sub(period))
    }

    /// Returns the number of the slot of the last interval.
    fn last(&self) -> u64 {
        self.first + (self.slots.len() as u64).saturating_sub(1)
    }

    /// Returns the share of `sum`, the sum of the first slot, that counts for the period.
    fn part_of_first(&self, sum: i64) -> i64 {
        let (Some(slot), Some(last)) = (self.slots.front(), self.slots.back()) else { return 0 };
        let start = self.start(last.end);
        if slot.start >= start {
            return sum;
        }
        let nanoseconds =
            |from: Duration| i128::try_from(slot.end.saturating_sub(from).as_nanos()).unwrap_or(i128::MAX);
        let part = i128::from(sum).saturating_mul(nanoseconds(start)).checked_div(nanoseconds(slot.start));
        part.and_then(|part| i64::try_from(part).ok()).unwrap_or(0)
    }
}

impl Window {
    /// Adds the value of the last interval.
    pub(super) fn add(&mut self, timeline: &Timeline, value: i64) {
        while self.0.front().is_some_and(|(slot, _)| *slot < timeline.first) {
            self.0.pop_front();
        }
        let last = timeline.last();
        match self.0.back_mut() {
            Some((slot, sum)) if *slot == last => *sum = sum.saturating_add(value),
            _ if value != 0 => self.0.push_back((last, value)),
            _ => {}
        }
    }

    /// Returns the sum of the values in the period.
    pub(super) fn sum(&self, timeline: &Timeline) -> i64 {
        self.0.iter().fold(0, |total, &(slot, sum)| {
            total.saturating_add(if slot == timeline.first { timeline.part_of_first(sum) } else { sum })
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    /// Returns the sum after each interval. `intervals`: length in milliseconds and value.
    fn sums(period: Option<Duration>, intervals: impl IntoIterator<Item = (u64, i64)>) -> Vec<i64> {
        let (mut timeline, mut window) = (Timeline::new(period), Window::default());
        let mut now = Duration::ZERO;
        let mut sums = Vec::new();
        for (length, value) in intervals {
            let end = now + Duration::from_millis(length);
            timeline.advance(&(now..end));
            window.add(&timeline, value);
            assert!(timeline.slots.len() <= SLOTS as usize + 2 && window.0.len() <= timeline.slots.len());
            sums.push(window.sum(&timeline));
            now = end;
        }
        sums
    }

    #[test]
    fn sum_is_exact_for_intervals_that_divide_the_period() {
        let values: Vec<i64> = (0..200).map(|second| (second * 7919) % 101 - 40).collect();
        let shown = sums(MINUTE, values.iter().map(|value| (1000, *value)));
        for (last, sum) in shown.into_iter().enumerate() {
            let first = (last + 1).saturating_sub(60);
            assert_eq!(sum, values[first..=last].iter().sum::<i64>());
        }
    }

    #[test]
    fn short_intervals_share_slots() {
        // 600 intervals lie in a minute.
        let shown = sums(MINUTE, (0..2000).map(|_| (100, 10)));
        assert_eq!((shown[0], shown[599], shown[600], shown[1999]), (10, 6000, 6000, 6000));
        let one = sums(MINUTE, (0..700).map(|place| (100, i64::from(place == 5) * 1000)));
        assert_eq!((one[4], one[5], one[599], one[609]), (0, 1000, 1000, 0));
        assert!((0..=1000).contains(&one[604]));
        assert_eq!(one[610], 0);
    }

    #[test]
    fn long_interval_counts_in_proportion() {
        assert_eq!(sums(Some(Duration::from_secs(1)), [(10_000, 500), (10_000, -20)]), [50, -2]);
        assert_eq!(sums(MINUTE, [(40_000, 400), (40_000, 100), (40_000, 0)]), [400, 300, 50]);
    }

    #[test]
    fn sum_without_a_period_begins_at_the_start() {
        assert_eq!(sums(None, [(1000, 3), (3_600_000, 0), (86_400_000, -1), (5, 7)]), [3, 3, 2, 9]);
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        assert_eq!(sums(MINUTE, [(1000, i64::MAX), (1000, 5), (58_500, 0)]), [i64::MAX, i64::MAX, i64::MAX / 2 + 5]);
        assert_eq!(sums(MINUTE, [(0, 5), (0, 6)]), [5, 11]);
    }
}
