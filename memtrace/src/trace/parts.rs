//! The parts of a run: one row for each kind of observation, in the order of their work.

mod accounts;
mod activity;
mod demotions;
mod go_profiles;
mod lock_waits;
mod overhead;
mod own_memory;
mod pages;
mod pages_of_others;
mod patches;
mod periodic_sites;
mod rechecks;
mod reclaim;
mod recorded_samplers;
mod resident_sets;
mod samplers;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_history::Fact;
use memtrace_history::pipeline::AccountSink;
use memtrace_model::{Bytes, EndedImage, Object, Tick};

use self::accounts::RunAccounts;
use self::activity::RunActivity;
use self::demotions::Demotions;
use self::go_profiles::{GoProfiles, ProfileLimits};
use self::overhead::MeasuredOverhead;
use self::own_memory::OwnMemory;
use self::pages::PageReader;
use self::pages_of_others::PagesOfOthers;
use self::patches::RunPatches;
use self::periodic_sites::PeriodicSites;
use self::reclaim::ReclaimReader;
use self::resident_sets::ResidentSets;
use self::samplers::RunSamplers;
use super::config::Config;
use super::context::Context;
use super::facts::Facts;
use super::memory::MemoryPlan;
use super::overhead::OverheadMeter;
use super::part::{LeftImage, Part};
use crate::run_kit::error::Error;
use crate::run_kit::marks::MarkRequest;
use crate::run_kit::observer::Observer;

/// Data that is prepared before the parts are created.
#[derive(Default)]
pub(super) struct Prepared {
    accounts: Option<RunAccounts>,
    overhead: Option<OverheadMeter>,
    /// Limit of memtrace's memory; `None` without one.
    memory_limit: Option<Bytes>,
    /// Limits of the heap profiles that targets keep.
    profiles: ProfileLimits,
    /// Maximum number of patched processes.
    patched: usize,
}

/// A kind of part, and the function that creates it.
struct Row {
    name: &'static str,
    begins: Begins,
    create: Create,
}

/// Creates a part; `None` if the run has no such part.
type Create = fn(&Config, &mut Prepared, &mut Context) -> Result<Option<Box<dyn Part>>, Error>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// Before events count: the part receives all events, or attaches probes.
    BeforeEvents,
    /// As soon as events count: the part reads values at the start.
    WithEvents,
}

/// The kinds of parts, in the order of their work.
const ROWS: &[Row] = &[
    Row {
        name: "go profiles",
        begins: Begins::WithEvents,
        create: |config, prepared, context| GoProfiles::start(config, prepared.profiles, context).map(boxed),
    },
    Row {
        name: "accounts",
        begins: Begins::BeforeEvents,
        create: |_, prepared, _| Ok(boxed(prepared.accounts.take())),
    },
    Row {
        name: "activity",
        begins: Begins::BeforeEvents,
        create: |config, _, context| RunActivity::attach(config, context).map(boxed),
    },
    Row {
        name: "samplers",
        begins: Begins::BeforeEvents,
        create: |config, _, context| RunSamplers::attach(config, context).map(boxed),
    },
    Row { name: "demotions", begins: Begins::BeforeEvents, create: |config, _, _| Ok(boxed(Demotions::of(config))) },
    // This row follows the samplers and heap profiles that processes have, because they are used first, and the demotions,
    // because they can request a patch. The part begins as soon as events count, so that all samples of a patched process count.
    Row {
        name: "patches",
        begins: Begins::WithEvents,
        create: |config, prepared, context| RunPatches::start(config, prepared.patched, context).map(boxed),
    },
    // This row precedes the part that reads the page tables of processes with touched pages.
    Row {
        name: "pages of others",
        begins: Begins::WithEvents,
        create: |config, _, context| Ok(boxed(PagesOfOthers::start(config, context))),
    },
    Row {
        name: "pages",
        begins: Begins::WithEvents,
        create: |config, _, context| Ok(boxed(PageReader::start(config, context))),
    },
    Row {
        name: "overhead",
        begins: Begins::WithEvents,
        create: |config, prepared, context| {
            Ok(boxed(prepared.overhead.take().map(|meter| MeasuredOverhead::start(meter, config, context))))
        },
    },
    Row {
        name: "resident sets",
        begins: Begins::WithEvents,
        create: |config, _, context| Ok(boxed(ResidentSets::start(config, context))),
    },
    Row { name: "reclaim", begins: Begins::WithEvents, create: |config, _, _| Ok(boxed(ReclaimReader::start(config))) },
    Row { name: "sites", begins: Begins::WithEvents, create: |config, _, _| PeriodicSites::start(config).map(boxed) },
    Row {
        name: "own memory",
        begins: Begins::WithEvents,
        create: |_, prepared, _| Ok(boxed(prepared.memory_limit.map(OwnMemory::start))),
    },
];

fn boxed<T: Part + 'static>(part: Option<T>) -> Option<Box<dyn Part>> {
    part.map(|part| Box::new(part) as Box<dyn Part>)
}

impl Prepared {
    /// Creates the accounts of a run, and the sink for the accounts of the shard. The sink is `None` without accounts.
    pub(super) fn with_accounts(config: &Config, plan: &MemoryPlan) -> (Self, Option<AccountSink>) {
        let report = config.accounts.as_ref();
        let accounts =
            report.map(|report| RunAccounts::new(report, &config.grouping, config.rows(), plan.history_limit(config)));
        let (accounts, sink) = accounts.unzip();
        (Self { accounts, ..Self::default() }, sink)
    }

    /// Returns the prepared data of the parts that begin with the events. `shards`: number of shards.
    pub(super) fn with_events(meter: Option<OverheadMeter>, plan: &MemoryPlan, shards: usize) -> Self {
        let MemoryPlan { limit: memory_limit, profile_programs: programs, profile_stacks: stacks, patched, .. } = *plan;
        // A stack with samples counts as two, so a shard has room for half as many. A quarter of this room is kept for
        // the stacks of other processes.
        let profiles = ProfileLimits { programs, stacks, shards, stacks_of_shard: plan.stacks as usize * 3 / 8 };
        Self { overhead: meter, memory_limit, profiles, patched, ..Self::default() }
    }
}

/// The parts of a run, each with the index of its row in [`ROWS`].
#[derive(Default)]
pub(super) struct Parts {
    parts: Vec<(usize, Box<dyn Part>)>,
}

impl Parts {
    /// Creates the parts that begin before events count.
    pub(super) fn attach(config: &Config, prepared: Prepared, context: &mut Context) -> Result<Self, Error> {
        let mut parts = Self::default();
        parts.create(Begins::BeforeEvents, config, prepared, context)?;
        Ok(parts)
    }

    /// Creates the remaining parts as soon as events count: the values that they read now are the state before the
    /// events.
    pub(super) fn begin(&mut self, config: &Config, prepared: Prepared, context: &mut Context) -> Result<(), Error> {
        self.create(Begins::WithEvents, config, prepared, context)
    }

    /// Starts the parts when the clock of the run has started. Returns the facts about them that a recording stores.
    pub(super) fn start(&mut self, context: &Context) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.each().for_each(|part| part.start(context, &mut facts));
        facts
    }

    fn create(
        &mut self,
        begins: Begins,
        config: &Config,
        mut prepared: Prepared,
        context: &mut Context,
    ) -> Result<(), Error> {
        for (number, row) in ROWS.iter().enumerate().filter(|(_, row)| row.begins == begins) {
            if let Some(part) = (row.create)(config, &mut prepared, context)? {
                log::debug!("the run has the part {}", row.name);
                self.parts.push((number, part));
            }
        }
        self.parts.sort_by_key(|(number, _)| *number);
        Ok(())
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Box<dyn Part>> {
        self.parts.iter_mut().map(|(_, part)| part)
    }

    /// Returns true if a part must be polled every few milliseconds.
    pub(super) fn are_frequent(&self) -> bool {
        self.parts.iter().any(|(_, part)| part.is_frequent())
    }

    pub(super) fn poll(&mut self, context: &mut Context) {
        self.each().for_each(|part| part.poll(context));
    }

    pub(super) fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        self.each().for_each(|part| part.tick(context, observer));
    }

    /// Passes a request for a mark to the parts. Returns the request if no part has handled it.
    pub(super) fn mark(
        &mut self,
        request: MarkRequest,
        context: &mut Context,
        observer: &mut dyn Observer,
    ) -> Option<MarkRequest> {
        self.each().try_fold(request, |request, part| part.mark(request, context, observer))
    }

    pub(super) fn image_ended(&mut self, ended: &mut EndedImage, context: &mut Context) {
        self.each().for_each(|part| part.image_ended(ended, context));
    }

    pub(super) fn image_left(&mut self, left: &LeftImage<'_>, context: &mut Context) {
        self.each().for_each(|part| part.image_left(left, context));
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.parts.iter().flat_map(|(_, part)| part.objects())
    }

    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.each().for_each(|part| part.forget_files(closed));
    }

    pub(super) fn close(&mut self, context: &mut Context) {
        self.each().for_each(|part| part.close(context));
    }

    pub(super) fn stop(&mut self, context: &mut Context) {
        self.each().for_each(|part| part.stop(context));
    }

    pub(super) fn read_rest(&mut self, end: Tick, context: &mut Context, facts: &mut Facts) {
        self.each().for_each(|part| part.read_rest(end, context, facts));
    }

    pub(super) fn finish(self, context: &mut Context, facts: &mut Facts, observer: &mut dyn Observer) {
        self.parts.into_iter().for_each(|(_, part)| part.finish(context, facts, observer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(name: &str) -> usize {
        ROWS.iter().position(|row| row.name == name).unwrap()
    }

    #[test]
    fn heap_profiles_are_read_before_the_accounts_end() {
        assert!(position("go profiles") < position("accounts"));
    }

    #[test]
    fn samples_that_processes_take_themselves_come_first() {
        assert!(position("go profiles") < position("patches") && position("samplers") < position("patches"));
        assert!(position("demotions") < position("patches"));
        assert!(position("patches") < position("pages of others"));
    }

    #[test]
    fn overhead_is_sampled_before_parts_that_read_files() {
        assert!(position("overhead") < position("reclaim"));
    }
}
