//! Page faults.
//!
//! Raw tracepoints report each fault before the kernel handles it, with an error code that shows whether the page was
//! present (arch/x86/mm/fault.c, `trace_page_fault_entries`). Kernels without these tracepoints have the software
//! event for page faults. The software event for major faults occurs after a fault that has waited for a device.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{perf_event, raw_tracepoint};
use aya_ebpf::programs::{PerfEventContext, RawTracePointContext};
use memtrace_common::wire::{PAGE_SHIFT, fault, is_sampled};

use crate::limits::KERNEL_ADDRESSES;
use crate::origin::Interrupted;
use crate::settings::{self, field};
use crate::thread::Thread;
use crate::{address_space, emit, gate, kernel, sampled_processes, stack};

/// Bits of the error code that records keep. `X86_PF_PROT` and `X86_PF_WRITE` (arch/x86/include/asm/trap_pf.h) have the same
/// values as the flags in [`fault`].
const RECORDED_BITS: u64 = fault::PRESENT | fault::WRITE;

/// Increment of `pagefault_disabled` during a read of kernel memory, including the read of that field itself
/// (`copy_from_kernel_nofault`, mm/maccess.c).
const READ_DEPTH: i32 = 1;

/// `TP_PROTO(unsigned long address, struct pt_regs *regs, unsigned long error_code)`,
/// include/trace/events/exceptions.h.
#[raw_tracepoint(tracepoint = "page_fault_user")]
fn page_fault_user(context: RawTracePointContext) -> i32 {
    record(&context, context.arg(0), context.arg(2), || Interrupted { registers: context.arg(1) });
    0
}

/// Does the same as [`page_fault_user`], for an access of the kernel to a process's memory, as in read(2). The
/// arguments have the kernel's registers, so the user registers are taken from the task.
#[raw_tracepoint(tracepoint = "page_fault_kernel")]
fn page_fault_kernel(context: RawTracePointContext) -> i32 {
    let address: u64 = context.arg(0);
    if address < KERNEL_ADDRESSES && !is_failure() {
        record(&context, address, context.arg(2), Interrupted::current);
    }
    0
}

/// A page fault on a kernel without the tracepoints.
#[perf_event]
fn page_fault(context: PerfEventContext) -> u32 {
    // SAFETY: the context is the program's own.
    let address = unsafe { (*context.ctx).addr };
    record(&context, address, 0, Interrupted::current);
    0
}

/// A fault that has waited for a device.
#[perf_event]
fn page_fault_major(context: PerfEventContext) -> u32 {
    // SAFETY: the context is the program's own.
    let address = unsafe { (*context.ctx).addr };
    let thread = Thread::current();
    let page = page_of(address);
    if is_in_sample(thread, page) && is_recorded(thread) {
        emit::major_fault(&context, thread, page);
    }
    0
}

#[inline(always)]
fn record(context: &impl EbpfContext, address: u64, error_code: u64, origin: impl FnOnce() -> Interrupted) {
    let thread = Thread::current();
    let page = page_of(address);
    // The page sample is checked first, because it excludes most faults.
    if !is_in_sample(thread, page) || !is_recorded(thread) {
        return;
    }
    let ring = emit::ring_for_memory(thread);
    let stack = stack::take(context, &origin(), thread, ring);
    emit::fault(context, ring, thread, page | error_code & RECORDED_BITS, stack);
}

/// Returns true if the page belongs to the sample. Processes that share their memory have the same sample.
#[inline(always)]
fn is_in_sample(thread: Thread, page: u64) -> bool {
    is_sampled(address_space::main_process(thread.pid), page, settings::page_sample())
}

/// Returns true if page faults of the current thread, `thread`, are recorded now.
#[inline(always)]
fn is_recorded(thread: Thread) -> bool {
    gate::is_open_for_current() && !sampled_processes::contains(thread.pid)
}

/// Returns true if the kernel does not handle the fault (`faulthandler_disabled`, include/linux/uaccess.h). The
/// access fails, and no page becomes present. An example is a read of a stack by a BPF program.
#[inline(always)]
fn is_failure() -> bool {
    let depth = kernel::read(kernel::current_task(), field!(task.task_pagefault_disabled));
    depth.is_some_and(|depth: i32| depth > READ_DEPTH)
}

#[inline(always)]
fn page_of(address: u64) -> u64 {
    address >> PAGE_SHIFT << PAGE_SHIFT
}
