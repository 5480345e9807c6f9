//! Groups of options. A group has its options, their checks and their tests in one file. A command lists the groups that it
//! supports.

pub(crate) mod arguments_of_functions;
pub(crate) mod conflict;
mod events;
mod general;
mod grouping;
pub(crate) mod headings;
mod heap;
pub(crate) mod hooks;
mod output;
pub(crate) mod possible_values;
mod recording;
mod sampling;
pub(crate) mod source;
mod spans;
mod stacks;
pub(crate) mod tag_functions;
pub(crate) mod tag_presets;
mod target;
mod tuning;
pub(crate) mod units;

pub(crate) use events::{EventArgs, PageArgs, TouchArgs};
pub(crate) use general::{GeneralArgs, HelpFlag};
pub(crate) use grouping::{GroupArgs, resolve_tags, tags_without_rules};
pub(crate) use heap::{BlockArgs, BlockSizes, HeapArgs, HookArgs};
pub(crate) use output::{DEFAULT_KEEP_ENDED, OutputArgs, resolve_outputs, resolve_view};
pub(crate) use recording::{DEFAULT_INTERVAL, RecordingArgs, check_interval, check_size_limit};
pub(crate) use sampling::{SamplingArgs, SamplingRate};
pub(crate) use spans::{ActivityConfig, ProbesOf, SpanArgs, SpanFunction};
pub(crate) use stacks::{StackArgs, check_heap_profiles};
pub(crate) use target::{EndArgs, Excluded, TargetArgs, excluded};
pub(crate) use tuning::{ShardArgs, TuningArgs};
