//! Totals with names: the input of report writers.

mod cost;
mod live_changes;
mod unnamed;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    AbsAddr, BlockHistograms, BuildId, Bytes, Cgroup, Comm, Demotion, ImageEnd, Losses, MemcgProfile, Metric, OomKill,
    PageFaults, Part, Pid, Quantities, Quantity, ReclaimKind, Residency, ResidentSet, RunFacts, StackEnd, StallStats,
    Tid, User, VirtOffset,
};

pub use self::cost::{Cost, ProgramCost};
pub use self::live_changes::{LiveChanges, PartChange};
pub use self::unnamed::Unnamed;

/// Everything that a report can show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Facts of the run, and of the period that the profile shows.
    pub run: RunFacts,
    /// Profiles of earlier moments in order, with the time since the start of the trace. Only profiles for formats that
    /// show several moments have them.
    pub earlier: Vec<(Duration, Self)>,
    /// Process images, ordered by PID and then by time.
    pub processes: Vec<ProcessProfile>,
    /// Stacks, ordered by process, then by their frames. Equal stacks of one process are joined.
    pub stacks: Vec<StackProfile>,
    /// Distinct frames of the stacks.
    pub frames: Vec<Frame>,
    /// Distinct labels of the stacks.
    pub labels: Vec<String>,
    /// OOM kills of traced and untraced processes, ordered by time.
    pub oom_kills: Vec<OomKill>,
    /// Control groups with stalls, ordered by ID.
    pub cgroups: Vec<MemcgProfile>,
    /// Losses of the run, or of the period that the profile shows.
    pub losses: Losses,
}

/// Rows of a profile, without the facts of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRows {
    /// Same as [`Profile::processes`].
    pub processes: Vec<ProcessProfile>,
    /// Same as [`Profile::stacks`].
    pub stacks: Vec<StackProfile>,
    /// Same as [`Profile::frames`].
    pub frames: Vec<Frame>,
    /// Labels that the stacks have.
    pub labels: Vec<String>,
    /// Same as [`Profile::oom_kills`].
    pub oom_kills: Vec<OomKill>,
    /// Same as [`Profile::cgroups`].
    pub cgroups: Vec<MemcgProfile>,
    /// Same as [`Profile::losses`].
    pub losses: Losses,
}

/// A process image with its totals, or a group of ended images.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessProfile {
    /// Process id; 0 for a group.
    pub pid: Pid,
    /// The group, if the row stands for several process images. All numbers of the row are sums over the group.
    pub group: Option<EndedGroup>,
    /// Short name of the process.
    pub comm: Comm,
    /// Path of the executable in the mount namespace of the process, if known.
    pub exe: Option<PathBuf>,
    /// Kind of end, if the image has ended. A group has the most frequent kind.
    pub ended: Option<ImageEnd>,
    /// Time of the end since the start of the period that the profile shows, if known. A group has the time of its last
    /// end.
    pub ended_after: Option<Duration>,
    /// Sum of all stacks.
    pub total: Quantities,
    /// Number of frees of unknown blocks: blocks from before the start of tracing, and blocks that a filter excluded.
    pub unmatched_frees: u64,
    /// Number of frees of unknown blocks after a recorded fork: blocks of the parent, or filtered blocks.
    pub inherited_frees: u64,
    /// Number of times that the allocator itself freed a block that had been freed before.
    pub repeated_frees: u64,
    /// Number of frees of unknown blocks that samplers reported. The blocks were sampled before tracing began, or never.
    pub unmatched_samples: u64,
    /// Process that owns the memory, if this process uses the memory of another one and has events. The totals of these events
    /// belong to the owner. Always `None` for a group.
    pub shares_memory_of: Option<Pid>,
    /// Demotion of the process, if it had too many live blocks. A group has the sums and the largest minimum size, but
    /// no time.
    pub demotion: Demotion,
    /// High-water mark of the live bytes, if it was recorded.
    pub peak: Option<Bytes>,
    /// User, if known.
    pub user: Option<User>,
    /// Control group, if known.
    pub cgroup: Option<Arc<Cgroup>>,
    /// Number of threads at the last reading, if known.
    pub threads: Option<u32>,
    /// Names of threads, if parts have a thread as a key.
    pub thread_names: BTreeMap<Tid, String>,
    /// Time that the process was traced.
    pub traced: Duration,
    /// Stalls by kind.
    pub stalls: BTreeMap<ReclaimKind, StallStats>,
    /// Resident memory, if requested and the process runs.
    pub resident: Option<Residency>,
    /// True if the process runs, and its page tables could not be read, so that its resident memory is unknown. A group has the
    /// flag if one of its processes has it.
    pub resident_is_unknown: bool,
    /// Page faults as the kernel counts them, if pages are traced and the count is known.
    pub faults: Option<PageFaults>,
    /// High-water mark of the RSS, if pages are traced and the mark is known.
    pub peak_rss: Option<Bytes>,
    /// RSS at the start and at the end of the trace, if blocks are traced and the process runs.
    pub rss: Option<ResidentSet>,
}

impl ProcessProfile {
    /// Returns a process with a PID and a short name. All other fields are empty.
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
            unmatched_samples: 0,
            shares_memory_of: None,
            demotion: Demotion::default(),
            peak: None,
            user: None,
            cgroup: None,
            threads: None,
            thread_names: BTreeMap::new(),
            traced: Duration::ZERO,
            stalls: BTreeMap::new(),
            resident: None,
            resident_is_unknown: false,
            faults: None,
            peak_rss: None,
            rss: None,
        }
    }

    /// Returns the number of process images in this row.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.group.as_ref().map_or(1, |group| group.runs)
    }
}

/// A call stack of a process, or of one [part](Part) of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct StackProfile {
    /// Index of the process in [`Profile::processes`].
    pub process: usize,
    /// Part of the process.
    pub part: Part,
    /// Frames, the outermost first, including inline frames. Without a stack there are no frames, and `end` has the
    /// reason. Processes that run the same code share the memory of their frames.
    pub frames: Arc<[FrameId]>,
    /// End of the walk, or the reason for a missing stack.
    pub end: StackEnd,
    /// Group of the stack, if the group depends on the frames: a tag, or the object that called the allocator.
    pub label: Option<LabelId>,
    /// Quantities of the stack.
    pub usage: Quantities,
    /// Sizes, lifetimes and ages of blocks, if they were counted.
    pub histograms: BlockHistograms,
    /// Changes of the live and allocated bytes over time. Empty if the process has ended, or if there are no
    /// [`RunFacts::parts`].
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

    /// Returns the number of stacks if this is a sum of merged stacks; 0 if it is a single stack.
    #[must_use]
    pub const fn merged(&self) -> u64 {
        self.usage.get(Quantity::MergedStacks)
    }
}

/// Index of a frame in [`Profile::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

impl FrameId {
    /// Returns the ID of the frame with this index. There are far fewer than 2^32 frames.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// Returns the index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of the label of a stack in [`Profile::labels`] or in [`StackLabels::names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(u32);

impl LabelId {
    /// Returns the ID of the label with this index. There are far fewer than 2^32 labels.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// Returns the index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Labels of the stacks of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackLabels {
    /// Index in `names` of the label of each stack, in the order of the stacks; `None` for a stack without a label.
    pub of_stacks: Vec<Option<LabelId>>,
    /// Distinct labels.
    pub names: Vec<String>,
}

/// One function in a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Name of the function, or the reason for a missing name.
    pub name: Result<Name, Unnamed>,
    /// Object of the code; `None` for code without a file.
    pub object: Option<ObjectName>,
    /// Virtual address of the call in the object, as in its symbol table; the file offset if the headers of the object
    /// could not be read.
    pub offset: Option<VirtOffset>,
    /// Address of the call in the process, if the code has no object.
    pub address: Option<AbsAddr>,
    /// Source location of the call, if known.
    pub location: Option<Location>,
    /// True if the compiler inlined the function into its caller.
    pub inlined: bool,
    /// True if the frame was found by frame pointer, because the called function has no unwind information.
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
    /// Build ID, if the object has one.
    pub build_id: Option<BuildId>,
}

/// Source location of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Path of the source file as the compiler recorded it.
    pub file: PathBuf,
    /// Line number from 1, if known.
    pub line: Option<u32>,
}

impl Frame {
    /// Returns a frame with a name, or with the reason for a missing name. All other fields are empty.
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

    /// Returns the address of the call in the object, or in the process if the code has no object; 0 if the address is
    /// not known.
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
    /// Returns the profile with these rows, and with the profiles of `earlier` moments. `labels` returns the labels of
    /// the stacks, or `None` if the stacks keep the labels in `rows`.
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

    /// Returns begin and end of the period that the profile shows, since the start of tracing.
    #[must_use]
    pub fn shown_time(&self) -> Range<Duration> {
        let start = self.run.window.as_ref().map(|window| window.start).unwrap_or_default();
        start..start + self.run.duration
    }

    /// Returns the calls of a stack, the outermost first. A call is a function, followed by the functions that are
    /// inlined at the call.
    pub fn calls<'a>(&'a self, frames: &'a [FrameId]) -> impl Iterator<Item = &'a [FrameId]> {
        frames.chunk_by(|_, next| self.frames[next.index()].inlined)
    }

    /// Returns true if the profile has processes and all of them have ended, so that no memory is live.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.processes.is_empty() && self.processes.iter().all(|process| process.ended.is_some())
    }

    /// Returns the metric to draw: `chosen` if the event class has this metric, else the default.
    #[must_use]
    pub fn metric(&self, chosen: Option<Metric>) -> Metric {
        let default = || Metric::default_of(self.run.class, self.has_ended());
        chosen.filter(|metric| metric.is_of(self.run.class)).unwrap_or_else(default)
    }

    /// Returns true if the profile has one row, and the row is one process image.
    #[must_use]
    pub fn is_of_one_image(&self) -> bool {
        matches!(self.processes.as_slice(), [process] if process.group.is_none())
    }

    /// Returns the peak of the live bytes, if the profile has one row. The peaks of several processes cannot be added,
    /// because they are at different moments.
    #[must_use]
    pub fn sole_peak(&self) -> Option<Bytes> {
        match self.processes.as_slice() {
            [process] => process.peak,
            _ => None,
        }
    }

    /// Returns the number of frees of unknown blocks in all processes.
    #[must_use]
    pub fn unmatched_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.unmatched_frees).sum()
    }

    /// Returns the number of inherited frees in all processes.
    #[must_use]
    pub fn inherited_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.inherited_frees).sum()
    }

    /// Returns the number of repeated frees in all processes.
    #[must_use]
    pub fn repeated_frees(&self) -> u64 {
        self.processes.iter().map(|process| process.repeated_frees).sum()
    }

    /// Returns the number of frees of unknown blocks that samplers reported, in all processes.
    #[must_use]
    pub fn unmatched_samples(&self) -> u64 {
        self.processes.iter().map(|process| process.unmatched_samples).sum()
    }

    /// Returns the demoted processes.
    pub fn demoted(&self) -> impl Iterator<Item = &ProcessProfile> {
        self.processes.iter().filter(|process| !process.demotion.is_none())
    }

    /// Returns the histograms of all blocks.
    #[must_use]
    pub fn histograms(&self) -> BlockHistograms {
        let mut all = BlockHistograms::default();
        self.stacks.iter().for_each(|stack| all.add(&stack.histograms));
        all
    }
}

/// Ended process images of one executable, cgroup and user that share one row. Times are since the start of tracing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedGroup {
    /// Number of process images.
    pub runs: u64,
    /// Number of process images by kind of end.
    pub ends: BTreeMap<ImageEnd, u64>,
    /// Start of the first image; zero if it ran before tracing began.
    pub first_start: Duration,
    /// End of the last image.
    pub last_end: Duration,
    /// Largest images of the group, the largest first. Small images are not listed.
    pub largest: Vec<EndedRun>,
}

/// A process image that has ended, without its stacks.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    /// Process id.
    pub pid: Pid,
    /// Start of the image; zero if it ran before tracing began.
    pub start: Duration,
    /// Time of the end.
    pub end: Duration,
    /// Kind of end.
    pub ended: ImageEnd,
    /// Sum of the image's stacks.
    pub total: Quantities,
}
