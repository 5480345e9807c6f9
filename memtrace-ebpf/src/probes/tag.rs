//! Functions that change tags.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use memtrace_common::vocabulary::TagAction;
use memtrace_common::wire::{TagCookie, UNTAGGED};

use crate::registers::POPPED_BY_RETURN;
use crate::thread::Thread;
use crate::{arguments, emit, gate, late_tags, loss, private_stack, process_filter, registers, tags};

#[uprobe]
fn tag_entry(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let Some(thread) = traced_thread() else { return 0 };
    let places = arguments::cookie(&context);
    let cookie = TagCookie(places.0);
    let tested = arguments::argument(&context, places, 1);
    tags::count_call(cookie, tested);
    if tested.is_none_or(|tested| tested as u32 == cookie.condition()) {
        let stack_pointer = registers::stack_pointer(registers::of(&context));
        let value = arguments::argument(&context, places, 0).unwrap_or(0);
        change(&context, thread, cookie, value, stack_pointer);
    }
    0
}

#[uretprobe]
fn tag_return(context: RetProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let Some(thread) = traced_thread() else { return 0 };
    let cookie = TagCookie(arguments::cookie(&context).0);
    tags::count_call(cookie, None);
    let registers = registers::of(&context);
    let stack_pointer = registers::stack_pointer(registers).wrapping_sub(POPPED_BY_RETURN);
    change(&context, thread, cookie, registers::result(registers), stack_pointer);
    0
}

/// Counts the hit and returns the current thread, if its process is traced.
#[inline(always)]
fn traced_thread() -> Option<Thread> {
    let thread = Thread::current();
    if !process_filter::is_traced(thread.pid) {
        return None;
    }
    loss::other_hit();
    Some(thread)
}

/// Changes the tag, even while the gate is closed: later allocations have the new tag. A claim is an event, and is
/// recorded only while the gate is open. `stack_pointer` is the value at the entry of the function.
#[inline(always)]
fn change(context: &impl EbpfContext, thread: Thread, cookie: TagCookie, value: u64, stack_pointer: u64) {
    let action = cookie.action();
    if action == TagAction::SetLast && !late_tags::is_inside(context, thread, stack_pointer) {
        return;
    }
    let tag = if action.has_tag() { tags::id(context, cookie, value) } else { UNTAGGED };
    match action {
        TagAction::Claim => {
            if value == 0 || !gate::recorded(thread).frees() {
                return;
            }
            late_tags::before_free(context, thread, value);
            emit::claim(context, thread, value, tags::current(thread));
        }
        TagAction::SetLast => late_tags::set(context, thread, tag),
        TagAction::EnterWrapper => late_tags::enter(context, thread, stack_pointer),
        TagAction::LeaveWrapper => late_tags::leave(context, thread, stack_pointer),
        _ => tags::change(context, thread, action, tag, stack_pointer),
    }
    tags::count_effect(cookie);
}
