//! The account of one group.

use memtrace_model::{AccountCounters, AccountNumber, AccountTotals, Amount, ImageEnd, Tick};

use super::marks::Marks;
use super::step::Step;
use crate::account_changes::WaterMarks;

/// The account of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    counters: AccountCounters,
    live: Amount,
    exit: Amount,
    discarded: Amount,
    /// Marks since the start of the trace, or since the last reset.
    marks: Marks,
    /// Marks in the current interval of a recording; `None` if the group has not changed in it.
    interval: Option<Box<Marks>>,
    /// Number of the group's account in a recording, assigned at the end of the first interval with a change.
    pub(super) number: Option<AccountNumber>,
}

impl Group {
    /// Returns the group of a single account.
    pub(super) fn of_account(
        counters: AccountCounters,
        live: Amount,
        marks: WaterMarks,
        peak_at: Option<Tick>,
    ) -> Self {
        Self { counters, live, marks: Marks::exact(marks, peak_at), ..Self::default() }
    }

    /// Returns the group with these totals.
    pub(super) fn of_totals(totals: AccountTotals) -> Self {
        let AccountTotals { counters, live, exit, discarded, marks, peak_at } = totals;
        let marks = Marks { bounds: marks.unwrap_or_default(), peak_at };
        Self { counters, live, exit, discarded, marks, ..Self::default() }
    }

    /// Returns the upper bound of the high-water mark.
    pub(super) const fn high(&self) -> Amount {
        self.marks.bounds.high.at_most
    }

    /// Adds the changes of an interval. `most`: high-water mark of the sum of all groups.
    pub(super) fn apply(&mut self, step: &Step, most: Amount) {
        self.counters.add(&step.counters);
        self.exit += step.exit;
        self.discarded += step.discarded;
        let before = self.live;
        self.live += (step.counters.alloc - step.counters.free) - step.exit - step.discarded;
        let after = self.live;
        self.all_marks().for_each(|marks| marks.apply(before, after, step, most));
    }

    /// Sets the live amount at the end of an interval, and includes the exact marks of the interval.
    pub(super) fn apply_exact(&mut self, live: Amount, known: WaterMarks, peak_at: Tick) {
        self.live = live;
        self.all_marks().for_each(|marks| marks.apply_exact(known, peak_at));
    }

    /// Adds the change of an account's counters, without a change of the marks.
    pub(super) fn count(&mut self, before: &AccountCounters, after: &AccountCounters) {
        self.counters.add(after);
        self.counters.subtract(before);
    }

    /// Adds the amount that an image held at its end to `exit` or `discarded`. The live amount does not change.
    pub(super) fn end(&mut self, end: ImageEnd, live: Amount) {
        match end {
            ImageEnd::Exit | ImageEnd::OomKill => self.exit += live,
            ImageEnd::Exec => self.discarded += live,
        }
    }

    /// Starts new water marks at the live amount.
    pub(super) fn reset_marks(&mut self) {
        self.marks = Marks::at(self.live);
    }

    /// Adds a group that existed at another time: all accounts of one group had ended before the accounts of the
    /// other group began.
    pub(super) fn merge_other_time(&mut self, other: &Self) {
        let live = self.live + other.live;
        if let Some(marks) = &mut self.interval {
            marks.merge_other_time(live, &other.interval_marks());
        }
        self.marks.merge_other_time(live, &other.marks);
        self.add(other);
    }

    /// Adds another group. The order of the changes of the two groups is unknown. `most`: high-water mark of the sum of
    /// all groups.
    pub(super) fn merge(&mut self, other: &Self, most: Amount) {
        let live = self.live + other.live;
        if let Some(marks) = &mut self.interval {
            marks.merge(live, &other.interval_marks(), most);
        }
        self.marks.merge(live, &other.marks, most);
        self.add(other);
    }

    /// Returns the totals of the group.
    pub(super) const fn totals(&self) -> AccountTotals {
        self.with_marks(self.marks)
    }

    /// Starts marks for the current interval of a recording. Returns false if they were started before.
    pub(super) fn begin_interval(&mut self) -> bool {
        let is_new = self.interval.is_none();
        if is_new {
            self.interval = Some(Box::new(Marks::at(self.live)));
        }
        is_new
    }

    /// Ends the interval of a recording. Returns the totals with the marks of the interval; `None` if the group has
    /// not changed in it.
    pub(super) fn end_interval(&mut self) -> Option<AccountTotals> {
        self.interval.take().map(|marks| self.with_marks(*marks))
    }

    /// Returns the totals of a removed group at the end of the interval. The amounts are zero, because another
    /// group has them, and the low-water mark is 0.
    pub(super) fn after_removal(&self) -> AccountTotals {
        let mut marks = self.interval_marks();
        marks.apply_low(Amount::default());
        Self::default().with_marks(marks)
    }

    const fn with_marks(&self, Marks { bounds, peak_at }: Marks) -> AccountTotals {
        let Self { counters, live, exit, discarded, .. } = *self;
        AccountTotals { counters, live, exit, discarded, marks: Some(bounds), peak_at }
    }

    /// Returns the marks in the current interval of a recording.
    fn interval_marks(&self) -> Marks {
        self.interval.as_deref().copied().unwrap_or_else(|| Marks::at(self.live))
    }

    /// Returns all marks that are kept.
    fn all_marks(&mut self) -> impl Iterator<Item = &mut Marks> {
        std::iter::once(&mut self.marks).chain(self.interval.as_deref_mut())
    }

    /// Adds the amounts of another group.
    fn add(&mut self, other: &Self) {
        self.counters.add(&other.counters);
        self.live += other.live;
        self.exit += other.exit;
        self.discarded += other.discarded;
    }
}
