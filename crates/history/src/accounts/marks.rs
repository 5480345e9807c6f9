//! Water marks of one group, within bounds.

use memtrace_model::{Amount, AmountBounds, MarkBounds, Tick};

use super::step::Step;
use crate::account_changes::WaterMarks;

/// Water marks of a group, and the time of its highest amount.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) bounds: MarkBounds,
    pub(super) peak_at: Option<Tick>,
}

impl Marks {
    /// Returns the marks of a period with the constant amount `live`.
    pub(super) fn at(live: Amount) -> Self {
        Self::exact(WaterMarks::at(live), None)
    }

    /// Returns marks with equal lower and upper bounds.
    pub(super) fn exact(WaterMarks { low, high }: WaterMarks, peak_at: Option<Tick>) -> Self {
        let exact = |amount| AmountBounds { at_least: amount, at_most: amount };
        Self { bounds: MarkBounds { low: exact(low), high: exact(high) }, peak_at }
    }

    /// Includes an interval with the changes `step`, which change the amount from `before` to `after`. `most`:
    /// high-water mark of the sum of all groups.
    pub(super) fn apply(&mut self, before: Amount, after: Amount, step: &Step, most: Amount) {
        let highest = before + step.rise;
        let lowest = before.saturating_sub(step.fall);
        let reached = [lowest + step.widest, highest.saturating_sub(step.widest)];
        // `after` does not include the amounts that images held at their ends: these images may have ended before other
        // images allocated.
        let least_high = reached[0].greater(before).greater(after);
        let most_low = reached[1].lesser(before).lesser(after);
        let MarkBounds { low, high } = &mut self.bounds;
        if least_high.bytes > high.at_least.bytes {
            self.peak_at = step.peak.map(|(_, at)| at).or(self.peak_at);
        }
        high.at_least = high.at_least.greater(least_high);
        high.at_most = high.at_most.greater(highest.lesser(most)).greater(least_high);
        low.at_least = low.at_least.lesser(lowest);
        low.at_most = low.at_most.lesser(most_low);
    }

    /// Includes the exact marks of an interval.
    pub(super) fn apply_exact(&mut self, marks: WaterMarks, peak_at: Tick) {
        let high = &mut self.bounds.high;
        if marks.high.bytes > high.at_least.bytes {
            self.peak_at = Some(peak_at);
        }
        for known in [&mut high.at_least, &mut high.at_most] {
            *known = known.greater(marks.high);
        }
        self.apply_low(marks.low);
    }

    /// Includes a moment with the amount `lowest` in the low-water mark.
    pub(super) fn apply_low(&mut self, lowest: Amount) {
        let low = &mut self.bounds.low;
        for known in [&mut low.at_least, &mut low.at_most] {
            *known = known.lesser(lowest);
        }
    }

    /// Includes the marks of a group that existed at another time: all accounts of one group had ended before the
    /// accounts of the other group began. `live`: live amount of both groups together.
    pub(super) fn merge_other_time(&mut self, live: Amount, other: &Self) {
        let (ours, theirs) = (self.bounds, other.bounds);
        self.merge(live, other, ours.high.at_most.greater(theirs.high.at_most));
        let both = |ours: AmountBounds, theirs: AmountBounds| AmountBounds {
            at_least: ours.at_least.greater(theirs.at_least),
            at_most: ours.at_most.greater(theirs.at_most),
        };
        // The group that has ended has a low-water mark of 0, so the greater low-water mark is the mark of the other
        // group.
        self.bounds = MarkBounds { low: both(ours.low, theirs.low), high: both(ours.high, theirs.high) };
    }

    /// Includes the marks of another group. The order of the changes of the two groups is unknown. `live`: live amount
    /// of both groups together. `most`: high-water mark of the sum of all groups.
    pub(super) fn merge(&mut self, live: Amount, other: &Self, most: Amount) {
        let (ours, theirs) = (self.bounds, other.bounds);
        if theirs.high.at_least.bytes > ours.high.at_least.bytes {
            self.peak_at = other.peak_at;
        }
        // When one group is at its mark, the amount of the other group is between the marks of that group.
        let least_highs = [ours.high.at_least + theirs.low.at_least, theirs.high.at_least + ours.low.at_least];
        let most_lows = [ours.low.at_most + theirs.high.at_most, theirs.low.at_most + ours.high.at_most];
        let MarkBounds { low, high } = &mut self.bounds;
        high.at_least = least_highs.into_iter().fold(live, Amount::greater);
        high.at_most = (ours.high.at_most + theirs.high.at_most).lesser(most).greater(high.at_least);
        low.at_least = ours.low.at_least + theirs.low.at_least;
        low.at_most = most_lows.into_iter().fold(live, Amount::lesser);
    }
}
