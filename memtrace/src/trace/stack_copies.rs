//! Stacks that were finished in user space.

use memtrace_model::{FinishedStacks, Pid, Stack, StackId};

/// Stack that was finished in user space, by the id of its copy: its id, and its frames if they were not sent.
pub(super) type FindCopy<'a> = dyn Fn(Pid, StackId) -> Option<(StackId, Option<Stack>)> + 'a;

/// Returns the look-up of stacks that were finished in user space.
pub(super) fn find_copy(
    finished: Option<&FinishedStacks>,
) -> impl Fn(Pid, StackId) -> Option<(StackId, Option<Stack>)> + '_ {
    move |pid, copy| finished?.find(pid, copy).map(|(id, stack)| (id, stack.cloned()))
}
