//! Value types that pass between stages. No I/O, no clock, no thread.
//!
//! Three types connect the stages, and a test can construct each by hand: [`Event`] (decoded, owned), [`Snapshot`]
//! (raw addresses; supports merge and subtraction) and [`Profile`] (with names; the input of report writers).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod activity;
mod closest;
mod debug_files;
mod escape;
mod event;
mod event_class;
mod explanation;
pub mod format;
mod go_totals;
mod losses;
mod magnitude;
mod memory;
mod memory_counters;
mod memory_timeline;
mod metric;
mod names;
pub mod parse;
mod process;
mod profile;
mod quantity;
mod reclaim;
mod run_facts;
mod sample;
mod sample_source;
mod selection_explanation;
mod snapshot;
mod spread;
mod stack;
mod tag;
mod text_width;
mod threads;
mod totals;
mod units;
mod user_probe;
mod weight;
mod working_set;

pub use activity::{
    ActiveThread, Activity, ActivityChanges, ActivityEvent, CallSums, EventValue, FutexUse, JumpCondition, LeftOut,
    LockIdentity, LockRow, LockSums, Span, SpanCounts, SpanKind, SpanLabel, SpanRow, SpanSums, StepAction, StepKind,
    StepProbe, StepSequence, ThreadStep, UNTIL_TAIL_CALL, WaitClass,
};
pub use closest::closest;
pub use debug_files::{DebugFileCounts, DebugFileOutcome};
pub use escape::Comm;
pub use escape::{is_not_plain, plain, plain_lines, printable};
pub use event::{Event, EventKind, OutOfMemory, Touch};
pub use event_class::{ClassColumns, ClassFacts, ClassWords, EventClass};
pub use explanation::{
    CgroupEvents, CgroupLimit, CgroupMemory, Explanation, FileMemory, GoMemory, GoProfile, GoSizes, GoSource,
    HeapMemory, HeapSource, HeapStats, MemorySizes, NamedMemory, StatusCounters, ThreadStacks,
};
pub use go_totals::GoTotals;
pub use losses::{LossReason, Losses};
pub use magnitude::{Magnitude, Magnitudes, share};
pub use memory::{MappingKind, MappingTraits, Residency, ResidentKind, ResidentRange, Touched};
pub use memory_counters::{KernelMemory, MemoryCounters};
pub use memory_timeline::{MemoryCounter, MemoryTimeline, PressureCounter, ProcessTimeline, Steps};
pub use metric::{Metric, MetricFacts, Requirement};
pub use names::{CodeNames, FileState, GeneratedFunction, Names, PathObject};
pub use process::{
    BuildId, Cgroup, CgroupId, Container, FilterRule, GeneratedCode, ImageEnd, ImageId, ImageRusage, ImageStart,
    Mapping, NoPerfMap, Object, Owner, PageFaults, Pid, ProcessAttribute, ProcessEvent, ProcessEventKind, ProcessImage,
    ProcessMemory, Replaced, ResidentSet, Runtime, Rusage, Tid, Traits, Untraced, UntracedProcess, UntracedReason,
    User, Version,
};
pub use profile::{
    Cost, EndedGroup, EndedRun, Frame, FrameId, LabelId, LiveChanges, Location, Name, ObjectName, PartChange,
    ProcessProfile, Profile, ProfileRows, ProgramCost, StackLabels, StackProfile, Unnamed,
};
pub use quantity::{Measure, QUANTITIES, Quantities, Quantity, QuantityFacts, Storage, Variance};
pub use reclaim::{
    Assessment, KernelThread, Latencies, MachineReclaim, MemcgMemory, MemcgProfile, OomKill, Order, Orders, PerSecond,
    Pressure, PressureTime, ReclaimActivity, ReclaimKind, Stall, StallKey, StallStats, StallTotals, Stalled,
    VmCounters,
};
pub use run_facts::{PatchedProcess, RaisedMinSize, RunFacts};
pub use sample::{ProfileChange, Sample, SampleSum};
pub use sample_source::{SampleSource, Sampler, Samplers};
pub use selection_explanation::{
    MachineMemory, ProcessSizes, ProcessUse, ProcessesUse, Returnable, SelectedCgroup, SelectionExplanation,
    UnreadProcess, UnreadProcesses, UnreadReason,
};
pub use snapshot::{Delta, EndedImage, Epoch, ImageUsage, Snapshot, Snapshots, UnsentStacks};
pub use spread::Spread;
pub use stack::{Merged, Node, Stack, StackEnd, StackId, StackKey, Stacks, Tree, split_frame};
pub use tag::{
    TagAction, TagEffect, TagField, TagFormat, TagFunctionCalls, TagName, TagSource, TagValue, TestedArgument,
};
pub use text_width::{columns_of, padded, padded_left, shortened, shortened_left, shortened_middle};
pub use threads::{
    CounterSource, MachineUsage, MachineValue, OtherThreads, ProcessInterval, ProcessValue, ProcessValues, SourceState,
    TaskState, ThreadColumn, ThreadIdentity, ThreadInterval, ThreadUsage, ThreadsEvent, ThreadsEventKind,
    ThreadsInterval, UsageCounter,
};
pub use totals::{
    AccountColumn, AccountCounters, AccountInterval, AccountKeys, AccountNumber, AccountRow, AccountTable,
    AccountTotals, AllocatorId, Amount, AmountBounds, BlockHistograms, BlockQuantity, CallsBySize, Demotion, GroupBy,
    Log2, MarkBounds, Part, PartKey, PartKeys, TagId,
};
pub use units::{AbsAddr, Bytes, FileOffset, HUGE_PAGE, Nanoseconds, PAGE, Tick, VirtOffset};
pub use user_probe::{ArgumentLocation, ArgumentPlace, UserProbe};
pub use weight::rounding_key;
pub use working_set::{
    CacheFit, CacheSize, CacheUse, ComparedSizes, DistinctFrames, DistinctMemory, DistinctPages, FaultedPages, Fit,
    LimitedGroup, MappingFrames, MeasuredMapping, PagePart, PageState, ProcessFrames, ProcessWorkingSet,
    ReferencedMemory, TouchWindow, TouchedPages, TouchedProcesses, UnknownFrames, UnmeasuredProcesses,
    WorkingSetMethod, WorkingSets,
};

/// The table of hooked functions, shared with the BPF programs.
pub use memtrace_common::vocabulary::{
    ALLOC_FAILURE, ALLOCATORS, FUNCTIONS, Function, KnownAllocator, Naming, REPEATS_FREES, Signature,
};

/// Limits of the wire format.
pub use memtrace_common::wire::{
    COUNTED_SITES, DEFAULT_FRAMES, HIERARCHIES, MAX_FRAMES, MAX_RINGS, MAX_TAG_FUNCTIONS, MAX_TAG_STEPS,
};

/// The sample of pages, which the BPF programs choose.
pub use memtrace_common::wire::is_sampled;

/// Thinning: the samples of blocks that patched processes leave out.
pub use memtrace_common::thinning::{MAX_THINNING, is_thinned};
