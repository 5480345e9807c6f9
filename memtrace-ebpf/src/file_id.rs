//! How the kernel knows a file, for user space to ask.
//!
//! On file systems that lie over others no file shows user space the inode that the kernel has of it. These programs are
//! not attached to anything: they run when user space has them run, in itself (`bpf_prog_test_run_raw_tp`,
//! net/bpf/test_run.c), and leave their answer.

use core::ffi::c_void;
use core::ptr::null_mut;

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task_btf};
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::unwind::{Named, naming};

use crate::kernel::{self, read};
use crate::settings::{self, areas as layout};
use crate::unwind::vma::{self, NOT_FOUND};

/// The last answer.
#[btf_map]
static NAMED: Array<Named, 1> = Array::new();

/// Names the file that the caller has mapped at the address in the first argument.
#[raw_tracepoint]
fn name_mapped(context: RawTracePointContext) -> i32 {
    say(naming::UNKNOWN);
    if settings::can_find_areas() {
        // SAFETY: the callback is a program of this object, and reads nothing of what it is given beside the mapping.
        let result =
            unsafe { bpf_find_vma(bpf_get_current_task_btf(), context.arg(0), describe as *mut c_void, null_mut(), 0) };
        if result != 0 && result != NOT_FOUND {
            say(naming::BUSY);
        }
    }
    0
}

/// As `bpf_find_vma` calls it, while the mappings are locked.
extern "C" fn describe(_task: *mut task_struct, area: *mut c_void, _nothing: *mut c_void) -> i64 {
    if let Some(file) = vma::file(area as u64) {
        name(file);
    }
    0
}

/// Names the file that the caller has open under the number in the first argument.
#[raw_tracepoint]
fn name_opened(context: RawTracePointContext) -> i32 {
    say(naming::UNKNOWN);
    if let Some(file) = opened(context.arg(0)) {
        name(file);
    }
    0
}

/// The address of the `struct file` (`files_lookup_fd_raw`, include/linux/fdtable.h).
#[inline(always)]
fn opened(number: u64) -> Option<u64> {
    let table = read(read(kernel::task(), layout::task_files())?, layout::files_table())?;
    let files: u64 = read(table, layout::table_files())?;
    read(files + number * size_of::<u64>() as u64, 0)
}

/// `file` is the address of a `struct file`.
#[inline(always)]
fn name(file: u64) {
    if let Some(named) = answer()
        && vma::read_object(file, &mut named.object).is_some()
    {
        named.verdict = naming::NAMED;
    }
}

#[inline(always)]
fn say(verdict: u32) {
    if let Some(named) = answer() {
        named.verdict = verdict;
    }
}

#[inline(always)]
fn answer() -> Option<&'static mut Named> {
    // SAFETY: a map value's pointer; who asks waits until the program has ended, and asks one thing at a time.
    NAMED.get_ptr_mut(0).map(|named| unsafe { &mut *named })
}
