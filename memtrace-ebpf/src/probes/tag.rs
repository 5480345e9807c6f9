//! Functions that change the current tag.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use memtrace_common::vocabulary::TagAction;
use memtrace_common::wire::TagCookie;

use crate::thread::Thread;
use crate::{arguments, emit, gate, loss, private_stack, process_filter, registers, tags};

#[uprobe]
fn tag_entry(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let Some(thread) = traced_thread() else { return 0 };
    let cookie = arguments::cookie(&context);
    let tested = arguments::argument(&context, cookie, 1);
    if tested.is_none_or(|tested| tested as u32 == TagCookie(cookie.0).condition()) {
        let stack_pointer = registers::stack_pointer(registers::of(&context));
        let value = arguments::argument(&context, cookie, 0).unwrap_or(0);
        change(&context, thread, TagCookie(cookie.0), value, stack_pointer);
    }
    0
}

#[uretprobe]
fn tag_return(context: RetProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let Some(thread) = traced_thread() else { return 0 };
    let result = registers::result(registers::of(&context));
    change(&context, thread, TagCookie(arguments::cookie(&context).0), result, 0);
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
/// recorded only while the gate is open.
#[inline(always)]
fn change(context: &impl EbpfContext, thread: Thread, cookie: TagCookie, value: u64, stack_pointer: u64) {
    if cookie.action() != TagAction::Claim {
        tags::change(context, thread, cookie, value, stack_pointer);
    } else if value != 0 && gate::recorded(thread).frees() {
        emit::claim(context, thread, value, tags::current(thread));
    }
}
