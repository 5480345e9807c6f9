//! Facts about a run at its end. Each part adds its own facts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use memtrace_history::AccountChanges;
use memtrace_history::facts::GoProfileMoments;
use memtrace_host::kernel::{Counters, ProgramTime};
use memtrace_model::{
    AccountTable, Activity, CallsBySize, CgroupId, Losses, MachineReclaim, MemcgMemory, Names, PatchedProcess,
    RaisedMinSize, Samplers, Snapshots, TagFunctionCalls, TagId, TagName, Tick,
};

use super::account_interval::AccountInterval;

/// Facts at the end of a run. The parts complete them.
pub(super) struct Facts {
    pub(super) measured: Measured,
    /// Losses outside of the ledgers.
    pub(super) losses: Losses,
    /// Totals of all processes, by event class.
    pub(super) snapshots: Snapshots,
    /// Number of recorded allocations, by size.
    pub(super) calls: CallsBySize,
    /// Minimum size of recorded allocations, if it was raised during the run.
    pub(super) raised: Option<RaisedMinSize>,
    /// Changes of accounts that the shard did not send, each with the number of the last reset before the end of the changes.
    pub(super) account_changes: Vec<(u64, AccountChanges)>,
    /// Accounts that are not derived from stacks.
    pub(super) accounts: Option<AccountTable>,
    /// Accounts since the last recorded interval.
    pub(super) last_accounts: Option<AccountInterval>,
    /// Activity of threads; `None` if it was not traced.
    pub(super) activity: Option<UnnamedActivity>,
    pub(super) reclaim: Option<MeasuredReclaim>,
    /// Samplers of the targets: their heap profiles, samplers of their allocators, and patched allocators.
    pub(super) samplers: Samplers,
    /// Processes whose allocators were patched.
    pub(super) patched: Vec<PatchedProcess>,
    pub(super) go_profiles: GoProfileMoments,
}

/// Function that returns the activity of threads. Its argument has the names of the stacks of
/// waits.
pub(super) type UnnamedActivity = Box<dyn FnOnce(&dyn Names) -> Activity>;

/// Measurements by memtrace and the kernel, at the moment when tracing stops.
pub(super) struct Measured {
    pub(super) window: Range<Tick>,
    pub(super) duration: Duration,
    /// Processor time of memtrace while events were recorded.
    pub(super) cpu: Duration,
    pub(super) counters: Counters,
    /// Run time of the BPF programs at probes.
    pub(super) programs: ProgramTime,
    /// Number of probe hits in the targets.
    pub(super) hits: u64,
    /// Tags that targets have set, by ID.
    pub(super) tags: BTreeMap<TagId, TagName>,
    /// Calls of the functions that change tags.
    pub(super) tag_functions: Vec<TagFunctionCalls>,
}

/// Reclaim during a run.
#[derive(Debug)]
pub(super) struct MeasuredReclaim {
    pub(super) machine: MachineReclaim,
    pub(super) memcgs: Memcgs,
}

/// Path and memory of each memcg.
pub(super) type Memcgs = BTreeMap<CgroupId, (PathBuf, MemcgMemory)>;
