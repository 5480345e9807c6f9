//! The trait [`Book`] for recordings in files.

use std::collections::BTreeMap;

use memtrace_model::{AccountNumber, AccountTotals, Amount, EventClass, ImageId, LiveChanges, Losses, OomKill};
use rustc_hash::FxHashMap;

use crate::book::Book;
use crate::boundaries::{Boundary, IntervalRow, MarkRow};
use crate::exact_totals::ExactTotals;
use crate::file::error::Error;
use crate::gap::Gap;
use crate::header::Header;
use crate::interval::{AccountNames, Fact, Locations, RecordedActivity, RecordedImage, TotalKey};
use crate::memory_timeline::MemoryTimelineBuilder;
use crate::merged_images::MergedImages;
use crate::totals::Totals;

use super::{Recording, accounts, activity, locations, memory_over_time, merged_images, processes, samples, totals};

impl Book for Recording {
    fn header(&self) -> &Header {
        &self.header
    }

    fn intervals(&self) -> &[IntervalRow] {
        &self.intervals
    }

    fn marks(&self) -> &[MarkRow] {
        &self.marks
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn is_salvaged(&self) -> bool {
        self.is_salvaged
    }

    fn set_end_of_run(&mut self, end: ExactTotals) {
        self.exact_totals = Some(end);
        self.is_complete = true;
    }

    fn exact_totals(&self) -> Option<&ExactTotals> {
        self.exact_totals.as_ref()
    }

    fn facts(&self, at: Boundary) -> Result<Vec<Fact>, Error> {
        samples::facts(self, at)
    }

    fn locations(&self) -> Result<Locations, Error> {
        locations::locations(self)
    }

    fn totals_in_parts(&self, bounds: &[Boundary]) -> Result<Totals, Error> {
        totals::totals_in_parts(self, bounds)
    }

    fn live_changes(&self, bounds: &[Boundary]) -> Result<FxHashMap<TotalKey, LiveChanges>, Error> {
        totals::live_changes(self, bounds)
    }

    fn amounts_over_time(&self, class: EventClass) -> Result<Vec<(Boundary, Amount, Amount)>, Error> {
        totals::amounts_over_time(self, class)
    }

    fn memory_over_time(&self, to: Boundary) -> Result<MemoryTimelineBuilder, Error> {
        memory_over_time::memory_over_time(self, to)
    }

    fn losses_of_intervals(&self, from: Boundary, to: Boundary) -> Result<BTreeMap<Boundary, Losses>, Error> {
        totals::losses_of_intervals(self, from, to)
    }

    fn images(&self, at: Boundary) -> Result<BTreeMap<ImageId, RecordedImage>, Error> {
        processes::images(self, at)
    }

    fn merged_images(
        &self,
        from: Boundary,
        to: Boundary,
    ) -> Result<BTreeMap<(ImageId, EventClass), MergedImages>, Error> {
        merged_images::merged_images(self, from, to)
    }

    fn oom_kills(&self, at: Boundary) -> Result<Vec<OomKill>, Error> {
        processes::oom_kills(self, at)
    }

    fn activity(&self, from: Boundary, to: Boundary) -> Result<Option<RecordedActivity>, Error> {
        activity::activity(self, from, to)
    }

    fn accounts(&self, from: Boundary, at: Boundary) -> Result<BTreeMap<AccountNumber, AccountTotals>, Error> {
        accounts::accounts(self, from, at)
    }

    fn each_account_row(
        &self,
        to: Boundary,
        each: &mut dyn FnMut(Boundary, AccountNumber, AccountTotals),
    ) -> Result<(), Error> {
        accounts::each_account_row(self, to, each)
    }

    fn account_names(&self) -> Result<Vec<AccountNames>, Error> {
        accounts::account_names(self)
    }
}
