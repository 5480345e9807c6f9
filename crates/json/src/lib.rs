#![doc = include_str!("introduction.md")]
//!
//! The types of this crate are the only description of the JSON: memtrace writes them, `memtrace diff`, tests and
//! benchmarks read them, and `cargo xtask docs` writes `docs/json.md` from them. Comments on types and fields are the
//! text of that page.
//!
//! A type with a lifetime borrows from the values that are written. Types that were read are `'static`.

#![warn(missing_docs)]

mod accounts;
mod activity;
mod difference;
mod doctor;
mod explain;
mod go_totals;
mod numbers;
mod process;
mod reclaim;
mod report;
mod stack;
mod tag_function;
mod threads;
mod working_set;

pub use accounts::{Account, AccountNumbers, Accounts};
pub use activity::{ActiveThread, Activity, CallDurations, Calls, Event, LeftOut, Lock, Span, SpanTotals, Value};
pub use difference::{ComparedReport, Difference, SiteChange};
pub use doctor::{Diagnosis, Finding};
pub use explain::{
    CgroupEvents, CgroupLimit, CgroupUse, ExplainedProcess, Explanation, FileMemory, GoMemory, Heap, HeapBlocks,
    KernelMemory, KindMemory, MachineMemory, MemoryCounters, NamedMemory, Pressure, PressureShares, ProcessSizes,
    ProcessSum, SelectedCgroup, SelectionExplanation, Sizes, ThreadStacks, UnreadProcess, UnreadProcesses,
};
pub use go_totals::GoTotals;
pub use numbers::{Blocks, Histograms, KernelCounts, NumberMut, Numbers, ResidentMemory};
pub use process::{
    Demotion, GroupRuns, PatchedProcess, Process, ResidentSet, Run, Sampler, Untraced, UntracedMemory, UntracedProcess,
};
pub use reclaim::{
    Cgroup, CgroupMemory, Effort, KernelThread, LatencyClass, MachineReclaim, OomKill, OrderStalls, StallPressure,
    Stalls, Vmstat,
};
pub use report::{Cost, Group, Mark, ProcessTimeline, RaisedMinSize, Report, Timeline, TouchWindow, Window};
pub use stack::{Frame, Stack};
pub use tag_function::{TagFunction, TestedValue};
pub use threads::{
    Interval, IntervalEvent, MachineUsage, MonitoredProcess, MonitoredThread, OtherThreads, ThreadUsage,
};
pub use working_set::{
    CacheUse, DistinctMemory, DistinctPages, Fit, LimitedGroup, MachineSeconds, MeasuredProcess, PageCache,
    WorkingSetMemory, WorkingSets,
};

use std::borrow::Cow;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Introduction of the documentation.
pub const INTRODUCTION: &str = include_str!("introduction.md");

/// Version of every format. An incompatible change of a format after its release raises the version of that format.
pub const SCHEMA_VERSION: u32 = 1;

/// Text that was read, or is borrowed from a written value.
pub type Text<'a> = Cow<'a, str>;

/// JSON object with names as keys. It keeps the order of the keys.
pub type Object<'a, T> = IndexMap<Text<'a>, T>;

/// Program that wrote the JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool<'a> {
    /// `memtrace`.
    pub name: Text<'a>,
    /// Version of the program.
    pub version: Text<'a>,
}

/// JSON list that is written one element at a time. The function returns the elements.
pub struct Stream<F>(pub F);

impl<F: Fn() -> I, I: IntoIterator<Item: Serialize>> Serialize for Stream<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Reads the value of a key that must exist and can be `null`.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Returns true for a number that is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
