//! Totals with names: the input of report writers.

mod cost;
mod ended_group;
mod live_changes;
mod merged_images;
mod unnamed;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    AbsAddr, BlockHistograms, BuildId, Bytes, Cgroup, Comm, ImageEnd, Losses, MemcgProfile, Metric, OomKill,
    PageFaults, Part, Pid, Quantities, Quantity, ReclaimKind, Residency, RunFacts, StackEnd, StallStats, Tid, User,
    VirtOffset,
};

pub use self::cost::{Cost, ProgramCost};
pub use self::ended_group::{EndedGroup, EndedRun};
pub use self::live_changes::{LiveChanges, PartChange};
pub use self::merged_images::MergedImages;
pub use self::unnamed::Unnamed;

/// Everything that a report can show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Facts of the run, and of the part of it that is shown.
    pub run: RunFacts,
    /// Totals at earlier moments, since the start of the trace, for formats with several of them; in order.
    pub earlier: Vec<(Duration, Self)>,
    /// Process images, ordered by PID and then by time.
    pub processes: Vec<ProcessProfile>,
    /// Stacks, ordered by process, then by their frames; equal stacks of one process are joined.
    pub stacks: Vec<StackProfile>,
    /// Frames of the stacks, each once.
    pub frames: Vec<Frame>,
    /// Labels of stacks, each once.
    pub labels: Vec<String>,
    /// OOM kills, of traced processes and others, in order of time.
    pub oom_kills: Vec<OomKill>,
    /// Control groups with stalls, ordered by ID.
    pub cgroups: Vec<MemcgProfile>,
    /// Losses.
    pub losses: Losses,
}

/// The rows of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRows {
    /// As in [`Profile`].
    pub processes: Vec<ProcessProfile>,
    /// As in [`Profile`].
    pub stacks: Vec<StackProfile>,
    /// As in [`Profile`].
    pub frames: Vec<Frame>,
    /// Labels that the stacks have.
    pub labels: Vec<String>,
    /// As in [`Profile`].
    pub oom_kills: Vec<OomKill>,
    /// As in [`Profile`].
    pub cgroups: Vec<MemcgProfile>,
    /// As in [`Profile`].
    pub losses: Losses,
}

/// A process image with its totals, or a group of ended ones.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessProfile {
    /// The process; 0 for a group.
    pub pid: Pid,
    /// The group, if the row stands for several process images. All numbers of the row are sums over them.
    pub group: Option<EndedGroup>,
    /// Short name.
    pub comm: Comm,
    /// Path of the executable in the mount namespace of the process.
    pub exe: Option<PathBuf>,
    /// End of the image, if it has ended; for a group, the most frequent one.
    pub ended: Option<ImageEnd>,
    /// Time from the start of tracing to that end, or to the last one of a group, if known.
    pub ended_after: Option<Duration>,
    /// Sum of all stacks.
    pub total: Quantities,
    /// Frees of unknown blocks: allocated before tracing began, or filtered.
    pub unmatched_frees: u64,
    /// Frees of unknown blocks in a process with a recorded fork: blocks of the parent, or filtered.
    pub inherited_frees: u64,
    /// Frees of blocks that were freed before, by the allocator itself.
    pub repeated_frees: u64,
    /// High-water mark of the live bytes, if it was kept.
    pub peak: Option<Bytes>,
    /// User, if known.
    pub user: Option<User>,
    /// Control group, if known.
    pub cgroup: Option<Arc<Cgroup>>,
    /// Number of threads when last read.
    pub threads: Option<u32>,
    /// Names of threads, if parts have one.
    pub thread_names: BTreeMap<Tid, String>,
    /// Duration of its trace.
    pub traced: Duration,
    /// Stalls by kind.
    pub stalls: BTreeMap<ReclaimKind, StallStats>,
    /// Resident memory, if requested and the process runs.
    pub resident: Option<Residency>,
    /// Page faults as the kernel counts them, if pages are traced and the count is known.
    pub faults: Option<PageFaults>,
    /// High-water mark of the RSS, if pages are traced and the mark is known.
    pub peak_rss: Option<Bytes>,
}

impl ProcessProfile {
    /// Returns a process with nothing but a PID and a short name.
    #[must_use]
    pub fn new(pid: Pid, comm: impl Into<Comm>) -> Self {
        Self {
            pid,
            group: None,
            comm: comm.into(),
            exe: None,
            ended: None,
            ended_after: None,
            total: Quantities::default(),
            unmatched_frees: 0,
            inherited_frees: 0,
            repeated_frees: 0,
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

    /// Returns the number of process images in this row.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.group.as_ref().map_or(1, |group| group.runs)
    }
}

/// A call stack of a process, or of a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StackProfile {
    /// Process: an index into [`Profile::processes`].
    pub process: usize,
    /// Part of the process.
    pub part: Part,
    /// Frames, the outermost first. Inlined functions have frames of their own. Empty without a stack; `end` has the
    /// reason. Shared by stacks of processes that run the same code.
    pub frames: Arc<[FrameId]>,
    /// End of the walk.
    pub end: StackEnd,
    /// Name by which the stack is grouped, if that depends on its frames: its tag, or the object that called the allocator.
    pub label: Option<LabelId>,
    /// The numbers of the stack.
    pub usage: Quantities,
    /// Sizes, lifetimes and ages of blocks, if they were counted.
    pub histograms: BlockHistograms,
    /// Changes of the live and allocated bytes over time; empty for processes that have ended, and without
    /// [`Profile::parts`].
    pub live_changes: LiveChanges,
}

impl StackProfile {
    /// Returns a stack without totals.
    #[must_use]
    pub fn new(process: usize, part: Part, frames: Arc<[FrameId]>, end: StackEnd) -> Self {
        Self {
            process,
            part,
            frames,
            end,
            label: None,
            usage: Quantities::default(),
            histograms: BlockHistograms::default(),
            live_changes: LiveChanges::default(),
        }
    }

    /// Number of stacks, if this is the sum of stacks that were merged, and 0 if it is one stack.
    #[must_use]
    pub const fn merged(&self) -> u64 {
        self.usage.get(Quantity::MergedStacks)
    }
}

/// Index of a frame in [`Profile::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

impl FrameId {
    /// Returns the frame with this index. There are far fewer than 2^32.
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

/// Index of the label of a stack, in [`Profile::labels`] or in labels by another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(u32);

impl LabelId {
    /// Returns the label with this index. There are far fewer than 2^32.
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

/// Labels of the stacks of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackLabels {
    /// One entry for each stack: the index of its label in `names`.
    pub of_stacks: Vec<Option<LabelId>>,
    /// Labels, each once.
    pub names: Vec<String>,
}

/// One function in a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Name, or the reason for a missing name.
    pub name: Result<Name, Unnamed>,
    /// Object of the code; `None` for code without a file.
    pub object: Option<ObjectName>,
    /// Address of the call in the terms of the object's symbols; if its headers could not be read, the file offset.
    pub offset: Option<VirtOffset>,
    /// Address of the call in the process; set only without an object.
    pub address: Option<AbsAddr>,
    /// Source location of the call.
    pub location: Option<Location>,
    /// True if the compiler inlined the function into its caller.
    pub inlined: bool,
    /// True if the frame was found by frame pointer, because the code that it calls has no unwind information.
    pub by_frame_pointer: bool,
}

/// Demangled name of a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub String);

/// Object in a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Path in the target's mount namespace.
    pub path: PathBuf,
    /// Build ID, if it has one.
    pub build_id: Option<BuildId>,
}

/// Source location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Path of the file as the compiler recorded it.
    pub file: PathBuf,
    /// Line, from 1, if known.
    pub line: Option<u32>,
}

impl Frame {
    /// Creates a frame of which nothing but the name, or the reason for a missing one, is known.
    #[must_use]
    pub const fn new(name: Result<Name, Unnamed>) -> Self {
        Self {
            name,
            object: None,
            offset: None,
            address: None,
            location: None,
            inlined: false,
            by_frame_pointer: false,
        }
    }

    /// Returns the address of the call: in the terms of the object's symbols, or in the process without an object; 0 if it is unknown.
    #[must_use]
    pub fn offset_or_address(&self) -> u64 {
        self.offset.map(|offset| offset.0).or(self.address.map(|address| address.0)).unwrap_or_default()
    }

    /// Returns the text for a picture or a list: the name, or `object+0xoffset`, or `[0xaddress]`.
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
    /// Returns the profile with these rows, and with the profiles of `earlier` moments. `labels` returns the labels of its
    /// stacks; if it returns `None`, they keep theirs.
    #[must_use]
    pub fn new(
        run: RunFacts,
        earlier: Vec<(Duration, Self)>,
        rows: ProfileRows,
        labels: impl FnOnce(&Self) -> Option<StackLabels>,
    ) -> Self {
        let ProfileRows { processes, stacks, frames, labels: own, oom_kills, cgroups, losses } = rows;
        let mut profile = Self { run, earlier, processes, stacks, frames, labels: own, oom_kills, cgroups, losses };
        if let Some(StackLabels { of_stacks, names }) = labels(&profile) {
            profile.stacks.iter_mut().zip(of_stacks).for_each(|(stack, label)| stack.label = label);
            profile.labels = names;
        }
        profile
    }

    /// Returns the sum of all processes.
    #[must_use]
    pub fn total(&self) -> Quantities {
        self.processes.iter().map(|process| process.total).sum()
    }

    /// Returns the time that is shown, since the start of tracing.
    #[must_use]
    pub fn shown_time(&self) -> Range<Duration> {
        let start = self.run.window.as_ref().map(|window| window.start).unwrap_or_default();
        start..start + self.run.duration
    }

    /// Returns the calls of a stack, the outermost first: a function, and the functions that are inlined at the call, which follow it.
    pub fn calls<'a>(&'a self, frames: &'a [FrameId]) -> impl Iterator<Item = &'a [FrameId]> {
        frames.chunk_by(|_, next| self.frames[next.index()].inlined)
    }

    /// Returns true if the profile has processes and all of them have ended, so that no memory is live.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.processes.is_empty() && self.processes.iter().all(|process| process.ended.is_some())
    }

    /// Returns the metric to draw: `chosen` if the event class has it, else the default.
    #[must_use]
    pub fn metric(&self, chosen: Option<Metric>) -> Metric {
        let default = || Metric::default_of(self.run.class, self.has_ended());
        chosen.filter(|metric| metric.is_of(self.run.class)).unwrap_or_else(default)
    }

    /// Returns true if the profile has a single row for a single process image.
    #[must_use]
    pub fn is_of_one_image(&self) -> bool {
        matches!(self.processes.as_slice(), [process] if process.group.is_none())
    }

    /// The peak of the live bytes if the profile has one process only: peaks of several are of different moments.
    #[must_use]
    pub fn sole_peak(&self) -> Option<Bytes> {
        match self.processes.as_slice() {
            [process] => process.peak,
            _ => None,
        }
    }

    /// Returns the frees of unknown blocks, of all processes.
    #[must_use]
    pub fn unmatched_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.unmatched_frees).sum()
    }

    /// Returns the frees of blocks inherited by fork, of all processes.
    #[must_use]
    pub fn inherited_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.inherited_frees).sum()
    }

    /// Returns the repeated frees of all processes.
    #[must_use]
    pub fn repeated_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.repeated_frees).sum()
    }

    /// Returns the histograms of all blocks.
    #[must_use]
    pub fn histograms(&self) -> BlockHistograms {
        let mut all = BlockHistograms::default();
        self.stacks.iter().for_each(|stack| all.add(&stack.histograms));
        all
    }

    /// Returns the distribution of stack ends over all allocations, touches or stalls.
    #[must_use]
    pub fn quality(&self) -> StackQuality {
        let mut quality = StackQuality::default();
        for stack in &self.stacks {
            *quality.0.entry(stack.end).or_default() += stack.usage.events();
        }
        quality
    }
}

/// Distribution of stack ends, by number of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackQuality(BTreeMap<StackEnd, u64>);

impl StackQuality {
    /// Returns the share, from 0 to 1, of events whose stack has this `end`; 0 if there are none.
    #[must_use]
    pub fn share(&self, end: StackEnd) -> f64 {
        let all: u64 = self.0.values().sum();
        if all == 0 { 0.0 } else { self.0.get(&end).copied().unwrap_or(0) as f64 / all as f64 }
    }
}
