//! Groups of options. A group has its options, their checks and their tests in one file. A command lists the groups that it
//! supports.

mod events;
mod general;
mod grouping;
mod heap;
mod output;
mod recording;
mod spans;
mod stacks;
mod target;
mod tuning;

pub(super) use events::{EventArgs, PageArgs, TouchArgs};
pub(super) use general::{GeneralArgs, HelpFlag};
pub(super) use grouping::{GroupArgs, resolve_tags, tags_without_rules};
pub(super) use heap::{BlockArgs, HeapArgs};
pub(super) use output::{DEFAULT_KEEP_ENDED, OutputArgs, resolve_outputs, resolve_view};
pub(super) use recording::{DEFAULT_INTERVAL, RecordingArgs, check_interval, check_size_limit};
pub(super) use spans::SpanArgs;
pub(super) use stacks::{StackArgs, check_heap_profiles};
pub(super) use target::{EndArgs, Excluded, TargetArgs, excluded};
pub(super) use tuning::{ShardArgs, TuningArgs};
