//! Lookup of stacks that user space has finished.

use memtrace_model::{Pid, Stack, StackId};

use crate::targets::finished_stacks::FinishedStacks;

/// Lookup of a finished stack, by its process and the ID of its copy. Returns the ID of the stack, and its frames if
/// they were not sent.
pub(super) type FindCopy<'a> = dyn Fn(Pid, StackId) -> Option<(StackId, Option<Stack>)> + 'a;

/// Returns the lookup of the stacks in `finished`.
pub(super) fn find_copy(
    finished: Option<&FinishedStacks>,
) -> impl Fn(Pid, StackId) -> Option<(StackId, Option<Stack>)> + '_ {
    move |pid, copy| finished?.find(pid, copy).map(|(id, stack)| (id, stack.cloned()))
}
