//! The account of one group.

use crate::model::{
    AccountCounters, AccountTotals, Amount, AmountBounds, Bytes, GroupMarks, ImageEnd, MarkBounds, Tick, WaterMarks,
};

/// The account of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    counters: AccountCounters,
    live: Amount,
    exit: Amount,
    discarded: Amount,
    marks: MarkBounds,
    peak_at: Option<Tick>,
}

/// The change of an account in an interval.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) before: AccountCounters,
    pub(super) after: AccountCounters,
    pub(super) marks: WaterMarks,
    pub(super) peak_at: Tick,
    /// End of the image, and the amount that it held then.
    pub(super) ended: Option<(ImageEnd, Amount)>,
}

/// The changes of all accounts of a group in an interval.
#[derive(Debug, Default)]
pub(super) struct Step {
    counters: AccountCounters,
    /// Sum of the rises from the start of the interval to the highest amount of each account.
    rise: Amount,
    /// Sum of the falls to the lowest amount of each account.
    fall: Amount,
    /// Largest difference between the highest and the lowest amount of an account.
    widest: Amount,
    /// Rise of the account that rose most, and the time of its highest amount.
    peak: Option<(Bytes, Tick)>,
    exit: Amount,
    discarded: Amount,
}

impl Step {
    /// Adds the change of an account.
    pub(super) fn add(&mut self, change: &Change) {
        let &Change { before, after, marks, peak_at, ended } = change;
        self.count(&before, &after);
        self.add_marks(before.current(), marks, peak_at);
        if let Some((end, live)) = ended {
            self.end(end, live);
        }
    }

    /// Adds the counters of a member, which the marks of the members include.
    pub(super) fn count(&mut self, before: &AccountCounters, after: &AccountCounters) {
        self.counters.add(after);
        self.counters.subtract(before);
    }

    /// Adds the marks of all members together.
    pub(super) fn add_members(&mut self, members: &GroupMarks) {
        self.add_marks(members.before, members.marks, members.peak_at);
    }

    fn add_marks(&mut self, start: Amount, marks: WaterMarks, peak_at: Tick) {
        let rise = less(marks.high, start);
        self.rise += rise;
        self.fall += less(start, marks.low);
        self.widest = greater(self.widest, less(marks.high, marks.low));
        if self.peak.is_none_or(|(most, _)| rise.bytes > most) {
            self.peak = Some((rise.bytes, peak_at));
        }
    }

    /// Ends an account that holds `live`.
    pub(super) fn end(&mut self, end: ImageEnd, live: Amount) {
        match end {
            ImageEnd::Exit | ImageEnd::OomKill => self.exit += live,
            ImageEnd::Exec => self.discarded += live,
        }
    }
}

impl Group {
    /// Returns the group of a single account.
    pub(super) fn of_account(
        counters: AccountCounters,
        live: Amount,
        WaterMarks { low, high }: WaterMarks,
        peak_at: Option<Tick>,
    ) -> Self {
        let exact = |amount| AmountBounds { at_least: amount, at_most: amount };
        let marks = MarkBounds { low: exact(low), high: exact(high) };
        Self { counters, live, marks, peak_at, ..Self::default() }
    }

    /// Returns the upper bound of the high-water mark.
    pub(super) const fn high(&self) -> Amount {
        self.marks.high.at_most
    }

    /// Adds the changes of an interval, in which all groups together had at most `most`.
    pub(super) fn apply(&mut self, step: &Step, most: Amount) {
        self.counters.add(&step.counters);
        self.exit += step.exit;
        self.discarded += step.discarded;
        let highest = self.live + step.rise;
        let lowest = less(self.live, step.fall);
        let reached = [lowest + step.widest, less(highest, step.widest)];
        // Images that have ended in the interval need not have run at the same time as others at its end.
        let after = self.live + (step.counters.alloc - step.counters.free) - step.exit - step.discarded;
        let least_high = greater(greater(reached[0], self.live), after);
        let most_low = lesser(lesser(reached[1], self.live), after);
        if least_high.bytes > self.marks.high.at_least.bytes {
            self.peak_at = step.peak.map(|(_, at)| at).or(self.peak_at);
        }
        let MarkBounds { low, high } = &mut self.marks;
        high.at_least = greater(high.at_least, least_high);
        high.at_most = greater(high.at_most, greater(lesser(highest, most), least_high));
        low.at_least = lesser(low.at_least, lowest);
        low.at_most = lesser(low.at_most, most_low);
        self.live = after;
    }

    /// Sets the live amount at the end of an interval, of which the marks are known.
    pub(super) fn apply_exact(&mut self, live: Amount, marks: WaterMarks, peak_at: Tick) {
        self.live = live;
        let WaterMarks { low, high } = marks;
        if high.bytes > self.marks.high.at_least.bytes {
            self.peak_at = Some(peak_at);
        }
        let bounds = &mut self.marks;
        for known in [&mut bounds.high.at_least, &mut bounds.high.at_most] {
            *known = greater(*known, high);
        }
        for known in [&mut bounds.low.at_least, &mut bounds.low.at_most] {
            *known = lesser(*known, low);
        }
    }

    /// Adds a change of counters alone.
    pub(super) fn count(&mut self, before: &AccountCounters, after: &AccountCounters) {
        self.counters.add(after);
        self.counters.subtract(before);
    }

    /// Adds the amount that an image held at its end, without a change of the live amount.
    pub(super) fn end(&mut self, end: ImageEnd, live: Amount) {
        match end {
            ImageEnd::Exit | ImageEnd::OomKill => self.exit += live,
            ImageEnd::Exec => self.discarded += live,
        }
    }

    /// Starts new water marks at the live amount.
    pub(super) fn reset_marks(&mut self) {
        let now = AmountBounds { at_least: self.live, at_most: self.live };
        self.marks = MarkBounds { low: now, high: now };
        self.peak_at = None;
    }

    /// Adds a group whose accounts had ended before those of this group began, or the other way round.
    pub(super) fn merge_other_time(&mut self, other: &Self) {
        let (ours, theirs) = (self.marks, other.marks);
        self.merge(other, greater(ours.high.at_most, theirs.high.at_most));
        let both = |ours: AmountBounds, theirs: AmountBounds| AmountBounds {
            at_least: greater(ours.at_least, theirs.at_least),
            at_most: greater(ours.at_most, theirs.at_most),
        };
        // One of the groups has no live amount, and so a low-water mark of 0.
        self.marks = MarkBounds { low: both(ours.low, theirs.low), high: both(ours.high, theirs.high) };
    }

    /// Adds a group that had its marks at unknown times. All groups together had at most `most`.
    pub(super) fn merge(&mut self, other: &Self, most: Amount) {
        self.counters.add(&other.counters);
        self.live += other.live;
        self.exit += other.exit;
        self.discarded += other.discarded;
        let (ours, theirs) = (self.marks, other.marks);
        if theirs.high.at_least.bytes > ours.high.at_least.bytes {
            self.peak_at = other.peak_at;
        }
        // When one of them is at its mark, the other is between its own marks.
        let least_highs = [ours.high.at_least + theirs.low.at_least, theirs.high.at_least + ours.low.at_least];
        let most_lows = [ours.low.at_most + theirs.high.at_most, theirs.low.at_most + ours.high.at_most];
        let MarkBounds { low, high } = &mut self.marks;
        high.at_least = least_highs.into_iter().fold(self.live, greater);
        high.at_most = greater(lesser(ours.high.at_most + theirs.high.at_most, most), high.at_least);
        low.at_least = ours.low.at_least + theirs.low.at_least;
        low.at_most = most_lows.into_iter().fold(self.live, lesser);
    }

    /// Returns the totals of the group.
    pub(super) const fn totals(&self) -> AccountTotals {
        AccountTotals {
            counters: self.counters,
            live: self.live,
            exit: self.exit,
            discarded: self.discarded,
            marks: Some(self.marks),
            peak_at: self.peak_at,
        }
    }
}

fn greater(one: Amount, other: Amount) -> Amount {
    Amount { bytes: one.bytes.max(other.bytes), count: one.count.max(other.count) }
}

fn lesser(one: Amount, other: Amount) -> Amount {
    Amount { bytes: one.bytes.min(other.bytes), count: one.count.min(other.count) }
}

/// Returns the difference, or 0 if `other` is greater.
fn less(one: Amount, other: Amount) -> Amount {
    Amount { bytes: Bytes(one.bytes.0.saturating_sub(other.bytes.0)), count: one.count.saturating_sub(other.count) }
}
