//! The options of the commands that trace: the groups that each of them supports.

use clap::Args;
use memtrace_model::EventClass;

use crate::options::{
    BlockArgs, EndArgs, EventArgs, GeneralArgs, GroupArgs, HeapArgs, HookArgs, OutputArgs, PageArgs, RecordingArgs,
    SamplingArgs, ShardArgs, SpanArgs, StackArgs, TargetArgs, TouchArgs, TuningArgs,
};

/// Groups of options that every trace supports, and that begin its help.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
    #[command(flatten)]
    pub(crate) stacks: StackArgs,
    #[command(flatten)]
    pub(crate) grouping: GroupArgs,
    #[command(flatten)]
    pub(crate) spans: SpanArgs,
}

/// Groups of options that every trace supports, and that end its help.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) shards: ShardArgs,
    #[command(flatten)]
    pub(crate) tuning: TuningArgs,
    #[command(flatten)]
    pub(crate) general: GeneralArgs,
}

/// Options of a trace of any event classes, also of `memtrace record`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) events: EventArgs,
    #[command(flatten)]
    pub(crate) hooks: HookArgs,
    #[command(flatten)]
    pub(crate) heap: HeapArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) blocks: BlockArgs,
    #[command(flatten)]
    pub(crate) pages: PageArgs,
    #[command(flatten)]
    pub(crate) touches: TouchArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl TraceArgs {
    /// Returns the options of a trace of `class` alone.
    pub(crate) fn of_class(class: EventClass, common: CommonArgs, run: RunArgs) -> Self {
        Self {
            common,
            events: EventArgs { events: vec![class] },
            hooks: HookArgs::default(),
            heap: HeapArgs::default(),
            sampling: SamplingArgs::default(),
            blocks: BlockArgs::default(),
            pages: PageArgs::default(),
            touches: TouchArgs::default(),
            run,
        }
    }
}

/// Options of `memtrace faults`.
#[derive(Debug, Args)]
pub(crate) struct FaultsArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    pages: PageArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl From<FaultsArgs> for TraceArgs {
    fn from(args: FaultsArgs) -> Self {
        Self { pages: args.pages, ..Self::of_class(EventClass::Fault, args.common, args.run) }
    }
}

/// Options of `memtrace maps`.
#[derive(Debug, Args)]
pub(crate) struct MapsArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    touches: TouchArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl From<MapsArgs> for TraceArgs {
    fn from(args: MapsArgs) -> Self {
        Self { touches: args.touches, ..Self::of_class(EventClass::Map, args.common, args.run) }
    }
}

/// Options of `memtrace reclaim`.
#[derive(Debug, Args)]
pub(crate) struct ReclaimArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl From<ReclaimArgs> for TraceArgs {
    fn from(args: ReclaimArgs) -> Self {
        Self::of_class(EventClass::Reclaim, args.common, args.run)
    }
}
