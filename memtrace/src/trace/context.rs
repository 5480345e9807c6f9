//! State that all parts of a run use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memtrace_history::pipeline::Shards;
use memtrace_host::kernel::{Kernel, Probes, ProcessFilter};
use memtrace_model::{Amount, EventClass, Losses, Pid, TagId, TagName, Tick};

use super::recorder::Recorder;
use super::tag_presets::RunTags;
use super::wait::Stop;
use crate::options::SamplingRate;
use crate::run_kit::clock;
use crate::targets::select::{LeftOut, Targets};
use crate::targets::track::ProcessTracker;
use crate::targets::unwind_tables::UnwindTables;

/// State that all parts of a run use. Dropping it removes the probes in `probes`.
pub(super) struct Context {
    pub(super) kernel: Kernel,
    /// Probes in the targets.
    pub(super) probes: Probes,
    pub(super) shards: Shards,
    pub(super) tracker: ProcessTracker,
    pub(super) tables: UnwindTables,
    pub(super) targets: Targets,
    pub(super) filter: ProcessFilter,
    /// Processes of memtraces, which `filter` leaves out.
    pub(super) left_out: LeftOut,
    pub(super) clock: RunClock,
    pub(super) tags: RunTags,
    /// The traced event classes.
    pub(super) classes: Vec<EventClass>,
    /// Rate of the samples that replace the probes of each call; `None` if each call is traced.
    pub(super) sampling: Option<SamplingRate>,
    /// Requests to sample processes whose calls are traced.
    pub(super) patch_requests: Vec<PatchRequest>,
    /// Demoted processes that are sampled from now on, each with the sum of the blocks that were dropped before.
    pub(super) sampled_instead: Vec<(Pid, Amount)>,
    /// Paths of the allocators that processes have newly mapped, in a run without probes of each call.
    pub(super) late_allocators: Vec<(Pid, PathBuf)>,
    /// History of the run; `None` if nothing reads intervals.
    pub(super) recorder: Option<Recorder>,
    /// Losses of the BPF programs at the last tick.
    pub(super) losses: Losses,
    /// False if events are missing that are not counted as losses.
    pub(super) complete: bool,
    /// Number of processes with blocks that are not followed.
    pub(super) demoted: u64,
    /// Reason that a part ends the run; `None` if the run continues.
    pub(super) stop: Option<Stop>,
}

/// Request to sample processes whose calls are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchRequest {
    /// The process has more live blocks than its share of the ledger.
    Process(Pid),
    /// Tracing each call costs the targets more than the limit.
    Targets,
}

impl Context {
    /// Returns the tags that targets have set so far, with their names.
    pub(super) fn named_tags(&mut self) -> BTreeMap<TagId, TagName> {
        let mut tags = self.kernel.tags();
        self.tags.name(&mut tags);
        tags
    }
}

/// Times of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    /// Origin of ticks on the monotonic clock.
    pub(super) origin: Duration,
    /// Time when all probes were in place.
    pub(super) start: Instant,
    /// Time when all probes were in place, as a tick.
    pub(super) start_tick: Tick,
    /// Last moment of the trace; `None` before it.
    end: Option<Tick>,
}

impl RunClock {
    /// Starts a clock now. `origin`: origin of ticks on the monotonic clock.
    pub(super) fn start(origin: Duration) -> Self {
        Self { origin, start: Instant::now(), start_tick: tick_since(origin), end: None }
    }

    pub(super) fn now(&self) -> Tick {
        tick_since(self.origin)
    }

    /// Ends the trace now. Returns its duration and its last moment.
    pub(super) fn stop(&mut self) -> (Duration, Tick) {
        let (duration, now) = (self.start.elapsed(), self.now());
        self.end = Some(now);
        (duration, now)
    }

    /// Returns the tick of a time on the monotonic clock. A time after the end of the trace gives the tick of the end.
    pub(super) fn tick_at(&self, time: Duration) -> Tick {
        let at = Tick::at(time.saturating_sub(self.origin));
        self.end.map_or(at, |end| at.min(end))
    }
}

fn tick_since(origin: Duration) -> Tick {
    Tick::at(clock::monotonic().saturating_sub(origin))
}
