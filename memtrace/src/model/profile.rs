//! The books with names: what every writer reads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    AbsAddr, AllocatorId, Amount, BuildId, Bytes, Cgroup, CgroupId, EventClass, ImageEnd, Losses, MachineReclaim,
    MemcgProfile, Metric, OomKill, PageFaults, Partition, Pid, ReclaimKind, Residency, StackEnd, StallStats, Tid,
    Usage, User, Variance, VirtOffset,
};

/// Everything that a report can show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// What it is about.
    pub class: EventClass,
    /// Numbers are estimated from one page in so many; 0 or 1: they are counted.
    pub page_sample: u32,
    /// How long was traced.
    pub duration: Duration,
    /// One entry a program run by a process, ordered by pid and then by time.
    pub processes: Vec<ProcessProfile>,
    /// Stacks, ordered by process, then by their frames; equal ones of one process are joined.
    pub stacks: Vec<StackProfile>,
    /// The frames that stacks refer to, each once.
    pub frames: Vec<Frame>,
    /// What allocators are called, where blocks are told apart by them.
    pub allocators: BTreeMap<AllocatorId, String>,
    /// Who was killed for want of memory, followed or not, in the order in which that happened.
    pub oom_kills: Vec<OomKill>,
    /// The paths of the control groups of who was killed, those that are still there.
    pub cgroup_paths: BTreeMap<CgroupId, String>,
    /// The control groups in which, or for whose limits, something waited for memory, ordered by their numbers.
    pub cgroups: Vec<MemcgProfile>,
    /// What the whole machine has done to find memory, where that was followed.
    pub reclaim: Option<MachineReclaim>,
    /// What was lost.
    pub losses: Losses,
    /// Allocations that the size filter kept out.
    pub filtered: Amount,
    /// Live numbers count only blocks that were at least this old.
    pub older: Option<Duration>,
    /// What else the reader should know: what was there and was not traced.
    pub notes: Vec<String>,
    /// What tracing has cost.
    pub cost: Cost,
}

/// One program run by one process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessProfile {
    /// The process.
    pub pid: Pid,
    /// Its short name.
    pub comm: String,
    /// The program's path as the process sees it.
    pub exe: Option<PathBuf>,
    /// How it ended, if it has.
    pub ended: Option<ImageEnd>,
    /// All its stacks together.
    pub total: Usage,
    /// What was live when it was replaced by `exec`.
    pub discarded: Amount,
    /// Frees of blocks that are not in the books: allocated before tracing began, or filtered.
    pub unmatched_frees: u64,
    /// Frees of blocks that are not in the books of a process that was seen to begin as a copy of another: blocks of the
    /// other's, or filtered.
    pub inherited_frees: u64,
    /// The highest that its live bytes ever were, where that was kept.
    pub peak: Option<Bytes>,
    /// The user that it ran as, where known.
    pub user: Option<User>,
    /// The control group that it was in, where known.
    pub cgroup: Option<Arc<Cgroup>>,
    /// How many threads it had when that was last looked at.
    pub threads: Option<u32>,
    /// The names of its threads, where stacks are told apart by them.
    pub thread_names: BTreeMap<Tid, String>,
    /// How long it was traced.
    pub traced: Duration,
    /// Its waits for memory, by what was done meanwhile.
    pub stalls: BTreeMap<ReclaimKind, StallStats>,
    /// What is resident of it, where that was asked for and it runs.
    pub resident: Option<Residency>,
    /// Its page faults as the kernel counts them, where pages are followed and that is known.
    pub faults: Option<PageFaults>,
    /// The most that was ever resident of it, as the kernel counts it, where pages are followed and that is known.
    pub peak_rss: Option<Bytes>,
}

impl ProcessProfile {
    /// A process of which no more is known than its pid and its short name.
    #[must_use]
    pub fn new(pid: Pid, comm: impl Into<String>) -> Self {
        Self {
            pid,
            comm: comm.into(),
            exe: None,
            ended: None,
            total: Usage::default(),
            discarded: Amount::default(),
            unmatched_frees: 0,
            inherited_frees: 0,
            peak: None,
            user: None,
            cgroup: None,
            threads: None,
            thread_names: BTreeMap::new(),
            traced: Duration::ZERO,
            stalls: BTreeMap::new(),
            resident: None,
            faults: None,
            peak_rss: None,
        }
    }
}

/// One call stack of one process, or of a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StackProfile {
    /// The process: an index into [`Profile::processes`].
    pub process: usize,
    /// The part of the process, where parts are kept apart.
    pub part: Partition,
    /// Root to leaf. Inlined functions have frames of their own. Empty where there is no stack; `end` says why.
    /// Shared by stacks of processes that run the same code.
    pub frames: Arc<[FrameId]>,
    /// How the walk ended.
    pub end: StackEnd,
    /// The numbers.
    pub usage: Usage,
    /// The stack's live bytes when its process' live bytes were highest, where that was kept.
    pub at_peak: Option<Bytes>,
    /// How many touches of pages had to wait for a device.
    pub major_faults: u64,
    /// How uncertain the numbers are.
    pub variance: Variance,
    /// What is resident of live mappings.
    pub resident: Bytes,
}

impl StackProfile {
    /// The value of `metric`; 0 for [`Metric::PeakBytes`] if no peak was kept.
    #[must_use]
    pub fn value(&self, metric: Metric) -> u64 {
        metric.of_usage(&self.usage).unwrap_or_else(|| self.at_peak.map_or(0, |bytes| bytes.0))
    }
}

/// A frame: an index into [`Profile::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

impl FrameId {
    /// The frame with that index. There are far fewer than 2^32.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// The index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One function in a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Its name, or why there is none.
    pub name: Result<Name, Unnamed>,
    /// The object whose code it is; `None` for code without a file.
    pub object: Option<ObjectName>,
    /// Where in the object the call is, as the object's own symbols count; or, where its headers could not be read, as its
    /// file counts.
    pub offset: Option<VirtOffset>,
    /// Where in the process the call is; set only where there is no object to count from.
    pub address: Option<AbsAddr>,
    /// Where in the source the call is.
    pub location: Option<Location>,
    /// Whether the compiler put the function's code into its caller.
    pub inlined: bool,
}

/// A function's name, demangled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub String);

/// Why a frame has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unnamed {
    /// No mapping is known at the address.
    NoMapping,
    /// The code has no file: it was generated at run time.
    Anonymous,
    /// The object's file could not be opened or read.
    ObjectUnreadable,
    /// The object has no symbol there.
    NoSymbol,
}

impl Unnamed {
    /// The reason in words.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::NoMapping => "no mapping known at this address",
            Self::Anonymous => "code generated at run time",
            Self::ObjectUnreadable => "the object could not be read",
            Self::NoSymbol => "the object has no symbol here",
        }
    }
}

/// An object as reports name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The path as the target sees it.
    pub path: PathBuf,
    /// The build-id, where it has one.
    pub build_id: Option<BuildId>,
}

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file's path as the compiler wrote it.
    pub file: PathBuf,
    /// The line, from 1, where known.
    pub line: Option<u32>,
}

/// What tracing has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Events that arrived.
    pub events: u64,
    /// Allocator calls inside others, seen and not counted.
    pub nested: u64,
    /// memtrace's own processor time.
    pub cpu: Duration,
    /// memtrace's own memory at its highest.
    pub peak_rss: Bytes,
    /// What memtrace's programs took in the targets; `None` where too little happened to tell.
    pub programs: Option<ProgramCost>,
}

/// What programs took in the targets, the traps that lead to them aside. Told from a part of the time, so not exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramCost {
    /// How often a probe was hit.
    pub hits: u64,
    /// How long the programs ran.
    pub time: Duration,
}

impl Frame {
    /// What a picture or a list shows: the name, or else `object+0xoffset`, or else `[0xaddress]`.
    #[must_use]
    pub fn label(&self) -> String {
        if let Ok(name) = &self.name {
            return name.0.clone();
        }
        let object = self
            .object
            .as_ref()
            .map(|object| object.path.file_name().unwrap_or(object.path.as_os_str()).to_string_lossy().into_owned());
        match (object, self.offset, self.address) {
            (Some(object), Some(offset), _) => format!("{object}+{offset}"),
            (Some(object), None, _) => object,
            (None, _, Some(address)) => format!("[{address}]"),
            (None, Some(offset), None) => format!("[{offset}]"),
            (None, None, None) => String::from("[unknown]"),
        }
    }
}

impl Profile {
    /// All processes together.
    #[must_use]
    pub fn total(&self) -> Usage {
        self.processes.iter().fold(Usage::default(), |mut sum, process| {
            sum += process.total;
            sum
        })
    }

    /// The peak of the live bytes if the profile has one process only: peaks of several are of different moments.
    #[must_use]
    pub fn sole_peak(&self) -> Option<Bytes> {
        match self.processes.as_slice() {
            [process] => process.peak,
            _ => None,
        }
    }

    /// Frees of blocks that are not in the books, of all processes together.
    #[must_use]
    pub fn unmatched_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.unmatched_frees).sum()
    }

    /// Frees of blocks that processes had from those that they are copies of, of all processes together.
    #[must_use]
    pub fn inherited_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.inherited_frees).sum()
    }

    /// How the stacks of all allocations, touches or waits ended.
    #[must_use]
    pub fn quality(&self) -> StackQuality {
        let mut quality = StackQuality::default();
        for stack in &self.stacks {
            *quality.0.entry(stack.end).or_default() += stack.usage.events();
        }
        quality
    }
}

/// How the stacks of all allocations ended, by number of allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackQuality(BTreeMap<StackEnd, u64>);

impl StackQuality {
    /// The share, from 0 to 1, of allocations whose stack ended like `end`; 0 where there were none.
    #[must_use]
    pub fn share(&self, end: StackEnd) -> f64 {
        let all: u64 = self.0.values().sum();
        if all == 0 { 0.0 } else { self.0.get(&end).copied().unwrap_or(0) as f64 / all as f64 }
    }
}
