//! Functions and USDT probes of targets that report the samples of their own allocations.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::wire::UNTAGGED;

use crate::origin::Interrupted;
use crate::thread::Thread;
use crate::{emit, gate, loss, private_stack, process_filter, sampled, settings, size_filter, stack, tags};

/// Entry of a function that decides whether a block is sampled.
#[uprobe]
fn sampled_size(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::count_hit_for_current() {
        sampled::keep_drawn_size(&context, Thread::current());
    }
    0
}

#[uprobe]
fn sampled_alloc(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::count_hit_for_current() {
        record(&context, Thread::current());
    }
    0
}

#[inline(always)]
fn record(context: &ProbeContext, thread: Thread) {
    let Some(block) = sampled::block(context, thread) else { return };
    if !size_filter::is_recorded(block.size) || !process_filter::is_thread_recorded() {
        loss::filtered(block.size);
        return;
    }
    let ring = emit::ring_for(thread, block.address);
    let stack = stack::take(context, &Interrupted::at_probe(context), thread, ring);
    let tag = if settings::records_tags() { tags::current(thread) } else { UNTAGGED };
    emit::sampled_alloc(context, ring, thread, tag as u16, block, stack);
}

#[uprobe]
fn sampled_free(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let thread = Thread::current();
    if gate::recorded(thread).frees() {
        loss::other_hit();
        if let Some(address) = sampled::freed(&context, thread) {
            emit::sampled_free(&context, thread, address);
        }
    }
    0
}
