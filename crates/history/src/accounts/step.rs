//! Changes of a group in an interval.

use memtrace_model::{AccountCounters, Amount, Bytes, ImageEnd, Tick};

use crate::account_changes::{GroupMarks, WaterMarks};

/// The change of an account in an interval.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) before: AccountCounters,
    pub(super) after: AccountCounters,
    pub(super) marks: WaterMarks,
    pub(super) peak_at: Tick,
    /// End of the image and its live amount at this time; `None` if the image runs on.
    pub(super) ended: Option<(ImageEnd, Amount)>,
}

/// The changes of all accounts of a group in an interval.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) counters: AccountCounters,
    /// Sum over all accounts: highest amount of the account minus its amount at the start of the interval.
    pub(super) rise: Amount,
    /// Sum over all accounts: amount of the account at the start of the interval minus its lowest amount.
    pub(super) fall: Amount,
    /// Largest difference between the highest and the lowest amount of one account.
    pub(super) widest: Amount,
    /// Rise of the account that rose most, and the time of its highest amount.
    pub(super) peak: Option<(Bytes, Tick)>,
    pub(super) exit: Amount,
    pub(super) discarded: Amount,
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

    /// Adds the change of an account's counters, without its marks. [`Self::add_members`] adds the marks of
    /// members.
    pub(super) fn count(&mut self, before: &AccountCounters, after: &AccountCounters) {
        self.counters.add(after);
        self.counters.subtract(before);
    }

    /// Adds the marks of the sum of all members.
    pub(super) fn add_members(&mut self, members: &GroupMarks) {
        self.add_marks(members.before, members.marks, members.peak_at);
    }

    fn add_marks(&mut self, start: Amount, marks: WaterMarks, peak_at: Tick) {
        let rise = marks.high.saturating_sub(start);
        self.rise += rise;
        self.fall += start.saturating_sub(marks.low);
        self.widest = self.widest.greater(marks.high.saturating_sub(marks.low));
        if self.peak.is_none_or(|(most, _)| rise.bytes > most) {
            self.peak = Some((rise.bytes, peak_at));
        }
    }

    /// Adds the end of an account that holds `live`.
    pub(super) fn end(&mut self, end: ImageEnd, live: Amount) {
        match end {
            ImageEnd::Exit | ImageEnd::OomKill => self.exit += live,
            ImageEnd::Exec => self.discarded += live,
        }
    }
}
