//! The options of the commands that trace: the groups that each of them supports.

use clap::Args;
use memtrace_model::EventClass;

use crate::cli::options::{
    BlockArgs, EndArgs, EventArgs, GeneralArgs, GroupArgs, HeapArgs, OutputArgs, PageArgs, RecordingArgs, ShardArgs,
    SpanArgs, StackArgs, TargetArgs, TouchArgs, TuningArgs,
};

/// Groups of options that every trace supports, and that begin its help.
#[derive(Debug, Args)]
pub(in crate::cli) struct CommonArgs {
    #[command(flatten)]
    pub(in crate::cli) target: TargetArgs,
    #[command(flatten)]
    pub(in crate::cli) end: EndArgs,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArgs,
    #[command(flatten)]
    pub(in crate::cli) recording: RecordingArgs,
    #[command(flatten)]
    pub(in crate::cli) stacks: StackArgs,
    #[command(flatten)]
    pub(in crate::cli) grouping: GroupArgs,
    #[command(flatten)]
    pub(in crate::cli) spans: SpanArgs,
}

/// Groups of options that every trace supports, and that end its help.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunArgs {
    #[command(flatten)]
    pub(in crate::cli) shards: ShardArgs,
    #[command(flatten)]
    pub(in crate::cli) tuning: TuningArgs,
    #[command(flatten)]
    pub(in crate::cli) general: GeneralArgs,
}

/// Options of a trace of any event classes, also of `memtrace record`.
#[derive(Debug, Args)]
pub(in crate::cli) struct TraceArgs {
    #[command(flatten)]
    pub(in crate::cli) common: CommonArgs,
    #[command(flatten)]
    pub(in crate::cli) events: EventArgs,
    #[command(flatten)]
    pub(in crate::cli) heap: HeapArgs,
    #[command(flatten)]
    pub(in crate::cli) blocks: BlockArgs,
    #[command(flatten)]
    pub(in crate::cli) pages: PageArgs,
    #[command(flatten)]
    pub(in crate::cli) touches: TouchArgs,
    #[command(flatten)]
    pub(in crate::cli) run: RunArgs,
}

impl TraceArgs {
    /// Returns the options of a trace of `class` alone.
    pub(in crate::cli) fn of_class(class: EventClass, common: CommonArgs, run: RunArgs) -> Self {
        Self {
            common,
            events: EventArgs { events: vec![class] },
            heap: HeapArgs::default(),
            blocks: BlockArgs::default(),
            pages: PageArgs::default(),
            touches: TouchArgs::default(),
            run,
        }
    }
}

/// Options of `memtrace faults`.
#[derive(Debug, Args)]
pub(in crate::cli) struct FaultsArgs {
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
pub(in crate::cli) struct MapsArgs {
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
pub(in crate::cli) struct ReclaimArgs {
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
