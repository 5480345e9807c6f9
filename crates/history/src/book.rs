//! The history of a run as views read it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use memtrace_model::{
    AccountNumber, AccountTotals, Amount, EventClass, ImageId, LiveChanges, Losses, MemoryTimelineBuilder,
    MergedImages, OomKill,
};
use rustc_hash::FxHashMap;

use super::boundaries::{Boundary, IntervalRow, MarkRow};
use super::end_of_run::EndOfRun;
use super::file::Error;
use super::gap::Gap;
use super::header::Header;
use super::interval::{AccountNames, Fact, Locations, RecordedActivity, RecordedImage, TotalKey};
use super::totals::Totals;

/// The history of a run: what has changed in each interval, by process image and stack.
///
/// A boundary is a moment between two intervals: all totals are known there. [`Recording`](super::Recording) reads the
/// history in a file, and [`MemoryBook`](super::MemoryBook) holds one in memory. Both give equal answers for the same
/// intervals. Errors are errors of the file.
pub trait Book: Debug {
    /// Facts that do not change.
    fn header(&self) -> &Header;

    /// The intervals in order of time. Old ones are longer than those at the end.
    fn intervals(&self) -> &[IntervalRow];

    /// The marks in order of time.
    fn marks(&self) -> &[MarkRow];

    /// Spans of intervals that could not be stored when they ended.
    fn gaps(&self) -> &[Gap];

    /// Returns true if the history has the end of the run.
    fn is_complete(&self) -> bool;

    /// Returns true if only the intervals before damage are known.
    fn is_salvaged(&self) -> bool;

    /// Adds what the run knows of its end. All of its intervals have been added.
    fn set_end_of_run(&mut self, end: EndOfRun);

    /// Returns what the run knows of its end; `None` before it, and in a history of an earlier run.
    fn end_of_run(&self) -> Option<&EndOfRun>;

    /// Returns the facts at a boundary, sorted by topic and item.
    fn facts(&self, at: Boundary) -> Result<Vec<Fact>, Error>;

    /// Returns all code locations.
    fn locations(&self) -> Result<Locations, Error>;

    /// Returns the changes from the first of `bounds` to the last one. From [`Boundary::START`], these are the totals at
    /// the last one. If there are more than two, stacks of images that run at the last one have their changes in each part
    /// between two successive ones.
    fn totals_in_parts(&self, bounds: &[Boundary]) -> Result<Totals, Error>;

    /// Returns the changes of live and allocated bytes in each part between two successive `bounds`, for the stacks of
    /// images that run at the last bound.
    fn live_changes(&self, bounds: &[Boundary]) -> Result<FxHashMap<TotalKey, LiveChanges>, Error>;

    /// Returns the live and the allocated amount of an event class at the end of each interval.
    fn amounts_over_time(&self, class: EventClass) -> Result<Vec<(Boundary, Amount, Amount)>, Error>;

    /// Returns the memory of processes over time, up to a boundary.
    fn memory_over_time(&self, to: Boundary) -> Result<MemoryTimelineBuilder, Error>;

    /// Returns the losses of each interval between two boundaries that has any, by its end.
    fn losses_of_intervals(&self, from: Boundary, to: Boundary) -> Result<BTreeMap<Boundary, Losses>, Error>;

    /// Returns the images that are known at a boundary. An image that ends later has no end yet; its name and other facts
    /// are the last ones of the history.
    fn images(&self, at: Boundary) -> Result<BTreeMap<ImageId, RecordedImage>, Error>;

    /// Returns the merged images that ended between two boundaries, by their group and event class. The totals of the group
    /// include theirs.
    fn merged_images(
        &self,
        from: Boundary,
        to: Boundary,
    ) -> Result<BTreeMap<(ImageId, EventClass), MergedImages>, Error>;

    /// Returns the OOM kills up to a boundary, in order of time.
    fn oom_kills(&self, at: Boundary) -> Result<Vec<OomKill>, Error>;

    /// Returns the activity of threads between two boundaries; `None` if the run has traced none. A slice belongs to the part
    /// in which it ended.
    fn activity(&self, from: Boundary, to: Boundary) -> Result<Option<RecordedActivity>, Error>;

    /// Returns the accounts at the boundary `at`, with the water marks since the boundary `from`. Accounts without a change
    /// since then have no marks of their own: they are at their live amount.
    fn accounts(&self, from: Boundary, at: Boundary) -> Result<BTreeMap<AccountNumber, AccountTotals>, Error>;

    /// Calls `each` for the accounts that have changed in each interval until the boundary `to`, in order of time: with their
    /// totals at its end, and the water marks within it. An account can have several rows of an interval.
    fn each_account_row(
        &self,
        to: Boundary,
        each: &mut dyn FnMut(Boundary, AccountNumber, AccountTotals),
    ) -> Result<(), Error>;

    /// Returns the names of the accounts.
    fn account_names(&self) -> Result<Vec<AccountNames>, Error>;

    /// Returns the changes from one boundary to another. From [`Boundary::START`], these are the totals at `to`.
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

    /// Returns the first boundary at or after a moment; the last one if there is none.
    fn boundary_after(&self, at: Duration) -> Boundary {
        let index = self.intervals().partition_point(|interval| interval.span.end < at);
        self.intervals().get(index).map_or_else(|| self.end(), IntervalRow::end)
    }
}
