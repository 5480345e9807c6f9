//! Iterators over tasks: programs that the kernel runs for each task, when user space reads a file.

use core::ptr::from_ref;

use aya_ebpf::bindings::{seq_file, task_struct};
use aya_ebpf::helpers::generated::bpf_seq_write;

/// `struct bpf_iter_meta`, include/linux/bpf.h, up to the member that is used.
#[repr(C)]
struct IteratorMeta {
    seq: *mut seq_file,
}

/// Context of a program of this iterator: `struct bpf_iter__task`, kernel/bpf/task_iter.c.
#[repr(C)]
pub struct TaskContext {
    meta: *const IteratorMeta,
    task: *mut task_struct,
}

/// Returns the file that user space reads, and the task, which is null at the end of the iteration.
#[inline(always)]
pub fn arguments(context: *const TaskContext) -> (*mut seq_file, *mut task_struct) {
    // SAFETY: the kernel passes a `bpf_iter__task` to programs of this iterator.
    unsafe { ((*(*context).meta).seq, (*context).task) }
}

/// Writes a record to the file that user space reads. If the buffer is full, the kernel runs the program again for the task.
#[inline(always)]
pub fn write<T>(seq: *mut seq_file, record: &T) {
    // SAFETY: the helper reads the record.
    unsafe { bpf_seq_write(seq, from_ref(record).cast(), size_of::<T>() as u32) };
}
