//! Touches of pages that are not there, or not the process' own.
//!
//! Where the kernel has them, raw tracepoints tell of each touch before it is dealt with, and whether the page was there
//! already (arch/x86/mm/fault.c, `trace_page_fault_entries`). Elsewhere the kernel's own events of page faults do. Of those
//! touches that had to wait for a device the event tells afterwards, everywhere.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{perf_event, raw_tracepoint};
use aya_ebpf::programs::{PerfEventContext, RawTracePointContext};
use memtrace_common::wire::{PAGE_SHIFT, fault, is_sampled};

use crate::stack::Interrupted;
use crate::thread::Thread;
use crate::{emit, gate, settings, stack};

/// `X86_PF_PROT` and `X86_PF_WRITE` of the error code (arch/x86/include/asm/trap_pf.h) are what [`fault`] calls them.
const TOLD: u64 = fault::PRESENT | fault::WRITE;

/// Addresses from here on are the kernel's: the upper half, whatever the number of levels of page tables.
const KERNEL: u64 = 1 << 63;

/// `TP_PROTO(unsigned long address, struct pt_regs *regs, unsigned long error_code)`, include/trace/events/exceptions.h.
#[raw_tracepoint(tracepoint = "page_fault_user")]
fn page_fault_user(context: RawTracePointContext) -> i32 {
    touched(&context, context.arg(0), context.arg(2), || Interrupted { registers: context.arg(1) });
    0
}

/// As above, where the kernel itself touches a process' memory, as in read(2). The registers are the kernel's then.
#[raw_tracepoint(tracepoint = "page_fault_kernel")]
fn page_fault_kernel(context: RawTracePointContext) -> i32 {
    let address: u64 = context.arg(0);
    if address < KERNEL {
        touched(&context, address, context.arg(2), Interrupted::current);
    }
    0
}

/// A touch of any kind, where there are no tracepoints.
#[perf_event]
fn page_fault(context: PerfEventContext) -> u32 {
    // SAFETY: the context is the program's own.
    let address = unsafe { (*context.ctx).addr };
    touched(&context, address, 0, Interrupted::current);
    0
}

/// A touch that had to wait for a device, after it.
#[perf_event]
fn page_fault_major(context: PerfEventContext) -> u32 {
    // SAFETY: the context is the program's own.
    let address = unsafe { (*context.ctx).addr };
    let thread = Thread::current();
    let page = page_of(address);
    if is_sampled(thread.pid, page, settings::page_sample()) && gate::is_open_for_current() {
        emit::major_fault(&context, thread, page);
    }
    0
}

/// `origin` says who touched it.
#[inline(always)]
fn touched(context: &impl EbpfContext, address: u64, how: u64, origin: impl FnOnce() -> Interrupted) {
    let thread = Thread::current();
    let page = page_of(address);
    // First, since it rules most of them out.
    if !is_sampled(thread.pid, page, settings::page_sample()) || !gate::is_open_for_current() {
        return;
    }
    let ring = emit::ring_for_memory(thread);
    let stack = stack::take(context, &origin(), thread, ring);
    emit::fault(context, ring, thread, page | how & TOLD, stack);
}

#[inline(always)]
fn page_of(address: u64) -> u64 {
    address >> PAGE_SHIFT << PAGE_SHIFT
}
