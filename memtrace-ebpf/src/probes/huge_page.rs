//! Page faults that map huge pages of anonymous memory.
//!
//! The programs are at the kernel functions that handle these faults. The sample of pages does not apply here: a
//! fault at an address outside the sample maps a huge page too, so each mapped huge page is recorded.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::helpers::generated::{bpf_get_func_arg, bpf_get_func_ret};
use aya_ebpf::macros::{btf_map, fentry, fexit};
use aya_ebpf::programs::{FEntryContext, FExitContext};
use memtrace_common::wire::{HUGE_PAGE_SHIFT, PAGE_SHIFT, fault};

use crate::limits::BPF_NOEXIST;
use crate::origin::Interrupted;
use crate::settings::field;
use crate::thread::{Thread, since_start};
use crate::{address_space, emit, gate, kernel, sampled_processes, stack};

/// Flag of `vm_fault.flags`: the access is a write (`FAULT_FLAG_WRITE`, include/linux/mm_types.h).
const FAULT_FLAG_WRITE: u32 = 1 << 0;

/// Results of calls that have mapped nothing: `VM_FAULT_ERROR`, which includes `VM_FAULT_FALLBACK`, `VM_FAULT_NOPAGE` and
/// `VM_FAULT_RETRY` (`enum vm_fault_reason`, include/linux/mm_types.h).
const NOT_MAPPED: u32 = 0x873 | 0x100 | 0x400;

/// Error of an insertion with [`BPF_NOEXIST`] if the key has an entry (`EEXIST`).
const EXISTS: i32 = -17;

/// Huge page of a process, or of the processes that share its memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct HugePage {
    /// Main process of the address space.
    pid: u32,
    reserved: u32,
    number: u64,
}

/// Calls of `do_huge_pmd_anonymous_page` in progress, by thread: the begin in nanoseconds since tick 0.
#[btf_map]
static HUGE_CALLS: LruHashMap<u32, u64, 1024> = LruHashMap::new();

/// Huge pages that were mapped lately: the end of the call, in nanoseconds since tick 0.
#[btf_map]
static HUGE_PAGES: LruHashMap<HugePage, u64, 4096> = LruHashMap::new();

/// Keeps the begin of a call.
#[fentry]
fn huge_page_begin(_context: FEntryContext) -> i32 {
    if gate::is_open_for_current() {
        let _ = HUGE_CALLS.insert(&Thread::current().tid, &since_start(), 0);
    }
    0
}

/// Records a huge page that `do_huge_pmd_anonymous_page` (mm/huge_memory.c) has mapped. A read maps the zero page,
/// which counts for no process.
#[fexit]
fn huge_page(context: FExitContext) -> i32 {
    let thread = Thread::current();
    if !gate::is_open_for_current() {
        return 0;
    }
    // SAFETY: the value is copied, and only this thread changes it.
    let begin = unsafe { HUGE_CALLS.get(&thread.tid) }.copied();
    let _ = HUGE_CALLS.remove(&thread.tid);
    if let Some(page) = written_page(&context)
        && is_first(thread, page, begin)
    {
        record(&context, thread, page | fault::HUGE | fault::WRITE);
    }
    0
}

/// Records that `do_huge_pmd_wp_page` (mm/huge_memory.c) has made a huge page writable, or has replaced the zero page
/// by a huge page.
#[fexit]
fn huge_page_write(context: FExitContext) -> i32 {
    if gate::is_open_for_current()
        && let Some(page) = written_page(&context)
    {
        record(&context, Thread::current(), page | fault::HUGE | fault::PRESENT | fault::WRITE);
    }
    0
}

/// Returns the address of the page that the current process has written to, if the function has mapped a huge page. Both
/// functions have the argument `struct vm_fault *vmf`, and return a `vm_fault_t`.
#[inline(always)]
fn written_page(context: &FExitContext) -> Option<u64> {
    let (mut vmf, mut result) = (0_u64, 0_u64);
    // SAFETY: the pointers refer to the context and to a word on the stack, as the helper requires.
    let has_argument = unsafe { bpf_get_func_arg(context.as_ptr(), 0, &raw mut vmf) } == 0;
    // SAFETY: as above.
    let has_result = unsafe { bpf_get_func_ret(context.as_ptr(), &raw mut result) } == 0;
    if !has_argument || !has_result || result as u32 & NOT_MAPPED != 0 {
        return None;
    }
    let flags: u32 = kernel::read(vmf, field!(huge_fault.fault_flags))?;
    let vma: u64 = kernel::read(vmf, field!(huge_fault.fault_vma))?;
    let mm: u64 = kernel::read(vma, field!(vma.vm_mm))?;
    // A debugger or a driver can touch the memory of another process.
    let is_own = kernel::read(kernel::current_task(), field!(vma.task_mm)) == Some(mm);
    if flags & FAULT_FLAG_WRITE == 0 || !is_own {
        return None;
    }
    let address: u64 = kernel::read(vmf, field!(huge_fault.fault_address))?;
    Some(address >> PAGE_SHIFT << PAGE_SHIFT)
}

/// Returns true unless another thread has mapped the huge page during this call, which began at `begin`. The result of the
/// kernel function does not show this: if it finds the page mapped, it returns the same result (`__do_huge_pmd_anonymous_page`,
/// mm/huge_memory.c).
#[inline(always)]
fn is_first(thread: Thread, page: u64, begin: Option<u64>) -> bool {
    let key = HugePage { pid: address_space::main_process(thread.pid), reserved: 0, number: page >> HUGE_PAGE_SHIFT };
    // SAFETY: the value is copied.
    if let Some(end) = unsafe { HUGE_PAGES.get(&key) }.copied() {
        // If another thread has removed the entry first, its call ran at the same time, and the other thread records the page.
        if begin.is_some_and(|begin| begin < end) || HUGE_PAGES.remove(&key).is_err() {
            return false;
        }
    }
    // If the map has no room, the huge page is recorded.
    HUGE_PAGES.insert(&key, &since_start(), BPF_NOEXIST) != Err(EXISTS)
}

#[inline(always)]
fn record(context: &FExitContext, thread: Thread, page_and_flags: u64) {
    if sampled_processes::contains(thread.pid) {
        return;
    }
    let ring = emit::ring_for_memory(thread);
    let stack = stack::take(context, &Interrupted::current(), thread, ring);
    emit::fault(context, ring, thread, page_and_flags, stack);
}
