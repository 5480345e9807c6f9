//! Values that are read at the end of an interval, rather than counted during it.

use std::borrow::Cow;

use memtrace_model::{CgroupId, ImageId};

/// A value at the end of an interval. It holds until a later sample of the same counter, so a value that has not
/// changed need not be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Owner of the value.
    pub subject: Subject,
    /// Name of the counter, with the unit at the end unless it is a count: `rss_anon_bytes`, `cpu_ns`. A name with a
    /// dot begins with the name of the kernel's file: `meminfo.MemAvailable_bytes`, `vmstat.pgscan_direct`.
    pub counter: Cow<'static, str>,
    /// The value.
    pub value: u64,
}

/// Owner of a sampled value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The machine.
    Machine,
    /// memtrace itself.
    Memtrace,
    /// A process image.
    Process(ImageId),
    /// A control group.
    Cgroup(CgroupId),
}

/// A fact of the run that reports show. A later fact with the same topic and item replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Kind of fact, such as `note` or `allocator`.
    pub topic: Cow<'static, str>,
    /// Key within the topic.
    pub item: Cow<'static, str>,
    /// The value.
    pub value: FactValue,
}

/// Value of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactValue {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// Topic of the facts with the counters of the machine at the start of the recording. Samples of these counters are
/// the kernel's totals.
pub(crate) const MACHINE_START: &str = "machine_start";
