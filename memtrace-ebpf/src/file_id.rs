//! Identity of a file inside the kernel: device, inode and change time, and the type of its file system.
//!
//! On stacked file systems no system call returns the inode of a VMA's file. User space runs these programs itself,
//! by `BPF_PROG_TEST_RUN` (`bpf_prog_test_run_raw_tp`, net/bpf/test_run.c). They are not attached to anything.

use core::ffi::c_void;
use core::ptr::null_mut;

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task_btf};
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::unwind::{FileIdReply, ObjectKey, file_id_status};

use crate::kernel;
use crate::limits::ENOENT;
use crate::settings::field;

/// Reply of the last run.
#[btf_map]
static FILE_ID: Array<FileIdReply, 1> = Array::new();

/// Identifies the file that the calling process has mapped at an address, the first argument.
#[raw_tracepoint]
fn file_id_mapped(context: RawTracePointContext) -> i32 {
    set_status(file_id_status::UNKNOWN);
    // SAFETY: the callback is a program of this object, and uses its VMA only.
    let result =
        unsafe { bpf_find_vma(bpf_get_current_task_btf(), context.arg(0), answer_vma as *mut c_void, null_mut(), 0) };
    if result != 0 && result != ENOENT {
        set_status(file_id_status::BUSY);
    }
    0
}

/// Identifies an open file of the calling process. The first argument is its descriptor.
#[raw_tracepoint]
fn file_id_opened(context: RawTracePointContext) -> i32 {
    set_status(file_id_status::UNKNOWN);
    if let Some(file) = open_file(context.arg(0)) {
        answer(file);
    }
    0
}

/// Reads the identity of the `struct file` at `file`.
#[inline(always)]
pub fn read(file: u64, object: &mut ObjectKey) -> Option<()> {
    let inode = kernel::read(file, field!(vma.file_inode))?;
    object.inode = kernel::read(inode, field!(vma.inode_ino))?;
    object.changed_s = kernel::read::<u64>(inode, field!(vma.inode_ctime_sec))? as i64;
    object.changed_ns = kernel::read::<u32>(inode, field!(vma.inode_ctime_nsec))? & NANOSECONDS;
    object.device = kernel::read(kernel::read(inode, field!(vma.inode_sb))?, field!(vma.sb_dev))?;
    Some(())
}

/// Mask of the nanoseconds of a change time. The upper bit is a flag (`I_CTIME_QUERIED`, include/linux/fs.h, Linux
/// 6.13).
const NANOSECONDS: u32 = (1 << 31) - 1;

/// Returns the address of the `struct file` of the VMA at `vma`, 0 if the VMA has none.
#[inline(always)]
pub fn vma_file(vma: u64) -> Option<u64> {
    kernel::read(vma, field!(vma.vm_file))
}

/// Callback of `bpf_find_vma`, which holds the mmap lock.
extern "C" fn answer_vma(_task: *mut task_struct, vma: *mut c_void, _argument: *mut c_void) -> i64 {
    if let Some(file) = vma_file(vma as u64) {
        answer(file);
    }
    0
}

/// Returns the address of the `struct file` of an open descriptor (`files_lookup_fd_raw`, include/linux/fdtable.h).
#[inline(always)]
fn open_file(descriptor: u64) -> Option<u64> {
    let table = kernel::read(kernel::read(kernel::current_task(), field!(vma.task_files))?, field!(vma.files_fdt))?;
    let files: u64 = kernel::read(table, field!(vma.fdt_fd))?;
    kernel::read(files + descriptor * size_of::<u64>() as u64, 0)
}

#[inline(always)]
fn answer(file: u64) {
    if let Some(reply) = reply()
        && read(file, &mut reply.object).is_some()
        && let Some(file_system) = type_of(file)
    {
        reply.file_system = file_system;
        reply.status = file_id_status::FOUND;
    }
}

/// Returns the type of the file system of the `struct file` at `file`.
#[inline(always)]
fn type_of(file: u64) -> Option<u32> {
    let superblock = kernel::read(kernel::read(file, field!(vma.file_inode))?, field!(vma.inode_sb))?;
    Some(kernel::read::<u64>(superblock, field!(vma.sb_magic))? as u32)
}

#[inline(always)]
fn set_status(status: u32) {
    if let Some(reply) = reply() {
        reply.status = status;
    }
}

#[inline(always)]
fn reply() -> Option<&'static mut FileIdReply> {
    // SAFETY: the pointer refers to a map value. User space runs one program at a time, and reads the reply afterwards.
    FILE_ID.get_ptr_mut(0).map(|reply| unsafe { &mut *reply })
}
