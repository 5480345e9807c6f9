//! The history of a run as views read it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use memtrace_model::{AccountNumber, AccountTotals, Amount, EventClass, ImageId, LiveChanges, Losses, OomKill};
use rustc_hash::FxHashMap;

use super::boundaries::{Boundary, IntervalRow, MarkRow};
use super::exact_totals::ExactTotals;
use super::file::Error;
use super::gap::Gap;
use super::header::Header;
use super::interval::{AccountNames, Fact, Locations, RecordedActivity, RecordedImage, TotalKey};
use super::memory_timeline::MemoryTimelineBuilder;
use super::merged_images::MergedImages;
use super::totals::Totals;

/// The history of a run: the changes of each interval, by process image and stack.
///
/// A boundary is a moment between two intervals. All totals are known at a boundary.
/// [`Recording`](super::Recording) reads the history from a file, and [`MemoryBook`](super::MemoryBook) holds it in
/// memory. Both give equal answers for the same intervals. Only reading a file can fail.
pub trait Book: Debug {
    /// Returns the facts that are known when the run starts.
    fn header(&self) -> &Header;

    /// Returns the intervals in order of time. Old intervals can be longer than recent ones, because they are
    /// merged.
    fn intervals(&self) -> &[IntervalRow];

    /// Returns the marks in order of time.
    fn marks(&self) -> &[MarkRow];

    /// Returns the gaps: the time ranges of intervals that could not be stored when they ended.
    fn gaps(&self) -> &[Gap];

    /// Returns true if the history has the end of the run.
    fn is_complete(&self) -> bool;

    /// Returns true if the file is damaged, and only the intervals before the damage are known.
    fn is_salvaged(&self) -> bool;

    /// Adds the exact totals at the end of the run. All intervals must have been added before.
    fn set_end_of_run(&mut self, end: ExactTotals);

    /// Returns the exact totals at the end of the run; `None` before the end, and in a recording of an earlier run.
    fn exact_totals(&self) -> Option<&ExactTotals>;

    /// Returns the facts at a boundary, sorted by topic and item.
    fn facts(&self, at: Boundary) -> Result<Vec<Fact>, Error>;

    /// Returns all code locations.
    fn locations(&self) -> Result<Locations, Error>;

    /// Returns the changes from the first to the last of `bounds`. If the first is [`Boundary::START`], the changes
    /// are the totals at the last bound. With more than two bounds, stacks of images that run at the last bound
    /// also have the changes between each two successive bounds.
    fn totals_in_parts(&self, bounds: &[Boundary]) -> Result<Totals, Error>;

    /// Returns the changes of live and allocated bytes between each two successive `bounds`, for the stacks of
    /// images that run at the last bound.
    fn live_changes(&self, bounds: &[Boundary]) -> Result<FxHashMap<TotalKey, LiveChanges>, Error>;

    /// Returns the live and the allocated amount of an event class at the end of each interval.
    fn amounts_over_time(&self, class: EventClass) -> Result<Vec<(Boundary, Amount, Amount)>, Error>;

    /// Returns the memory of processes over time, up to a boundary.
    fn memory_over_time(&self, to: Boundary) -> Result<MemoryTimelineBuilder, Error>;

    /// Returns the losses of each interval between two boundaries, by the end of the interval. Intervals without
    /// losses are left out.
    fn losses_of_intervals(&self, from: Boundary, to: Boundary) -> Result<BTreeMap<Boundary, Losses>, Error>;

    /// Returns the images that are known at a boundary. An image that ends after the boundary has no end here.
    /// Names and other facts of an image are the last ones in the history.
    fn images(&self, at: Boundary) -> Result<BTreeMap<ImageId, RecordedImage>, Error>;

    /// Returns the merged images that ended between two boundaries, by group and event class. The totals of the
    /// group include the totals of its merged images.
    fn merged_images(
        &self,
        from: Boundary,
        to: Boundary,
    ) -> Result<BTreeMap<(ImageId, EventClass), MergedImages>, Error>;

    /// Returns the OOM kills up to a boundary, in order of time.
    fn oom_kills(&self, at: Boundary) -> Result<Vec<OomKill>, Error>;

    /// Returns the activity of threads between two boundaries; `None` if the run did not trace activity. A span
    /// belongs to the interval of its end.
    fn activity(&self, from: Boundary, to: Boundary) -> Result<Option<RecordedActivity>, Error>;

    /// Returns the accounts at the boundary `at`, with the water marks since the boundary `from`. For an account
    /// without a change since `from`, both marks equal its live amount.
    fn accounts(&self, from: Boundary, at: Boundary) -> Result<BTreeMap<AccountNumber, AccountTotals>, Error>;

    /// Calls `each` for each changed account of each interval up to the boundary `to`, in order of time. The
    /// arguments are the end of the interval, the account, and its totals at this end with the water marks within
    /// the interval. An account can have several rows in one interval.
    fn each_account_row(
        &self,
        to: Boundary,
        each: &mut dyn FnMut(Boundary, AccountNumber, AccountTotals),
    ) -> Result<(), Error>;

    /// Returns the names of the accounts.
    fn account_names(&self) -> Result<Vec<AccountNames>, Error>;

    /// Returns the changes from one boundary to another. If `from` is [`Boundary::START`], the changes are the
    /// totals at `to`.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    fn totals(&self, from: Boundary, to: Boundary) -> Result<Totals, Error> {
        self.totals_in_parts(&[from, to])
    }

    /// Returns the losses between two boundaries.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    fn losses(&self, from: Boundary, to: Boundary) -> Result<Losses, Error> {
        let mut losses = Losses::default();
        self.losses_of_intervals(from, to)?.values().for_each(|lost| losses.merge(lost));
        Ok(losses)
    }

    /// Returns the last boundary.
    fn end(&self) -> Boundary {
        self.intervals().last().map_or(Boundary::START, IntervalRow::end)
    }

    /// Returns the last boundary at or before a moment.
    fn boundary_at(&self, at: Duration) -> Boundary {
        let after = self.intervals().partition_point(|interval| interval.span.end <= at);
        after.checked_sub(1).map_or(Boundary::START, |index| self.intervals()[index].end())
    }

    /// Returns the first boundary at or after a moment; the last boundary if no boundary is so late.
    fn boundary_after(&self, at: Duration) -> Boundary {
        let index = self.intervals().partition_point(|interval| interval.span.end < at);
        self.intervals().get(index).map_or_else(|| self.end(), IntervalRow::end)
    }
}
