//! Programs for runs that count the usage of threads: starts and exits of threads, OOM kills, and the iterator over
//! the counters of threads.

use aya_ebpf::bindings::{seq_file, task_struct};
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_seq_write};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::wire::ThreadRecord;

use crate::limits::KERNEL_ADDRESSES;
use crate::settings::field;
use crate::thread::Thread;
use crate::usage::{processes, task};
use crate::{gate, kernel, process_filter, thread};

/// `PF_KTHREAD`, include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// `PF_EXITING`, include/linux/sched.h. The kernel sets it before the tracepoint `sched_process_exit`.
const EXITING: u32 = 4;

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`, include/trace/events/sched.h. The program runs
/// in the parent, before the child runs.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn count_thread_start(context: RawTracePointContext) -> i32 {
    let parent = Thread::current().pid;
    let child: u32 = kernel::read(context.arg(1), field!(task.task_tgid)).unwrap_or(0);
    if child == parent && gate::is_counting() && process_filter::is_traced(parent) {
        processes::start_thread(&context, &task::process_of(context.arg(1)));
    }
    0
}

/// `TP_PROTO(struct task_struct *p, …)`, include/trace/events/sched.h. The program runs in each thread that exits. It
/// is attached before `process_exit`, which removes the filter decision on a process at the exit of its last thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn count_thread_exit(context: RawTracePointContext) -> i32 {
    if gate::is_counting() && process_filter::is_traced(Thread::current().pid) {
        // SAFETY: the helper takes nothing.
        let current = unsafe { bpf_get_current_task_btf() };
        let key = task::process_of(current as u64);
        processes::end_thread(&context, &key, current, thread::is_last(current as u64));
    }
    0
}

/// `TP_PROTO(struct task_struct *task, uid_t uid)`. The `TP_PROTO(int pid)` of older kernels is not handled.
#[raw_tracepoint(tracepoint = "mark_victim")]
fn count_oom_kill(context: RawTracePointContext) -> i32 {
    let victim: u64 = context.arg(0);
    if victim >= KERNEL_ADDRESSES && gate::is_counting() {
        let key = task::process_of(victim);
        if process_filter::may_be_traced(key.pid as u32) {
            processes::select_victim(&context, &key);
        }
    }
    0
}

/// `struct bpf_iter_meta`, include/linux/bpf.h, up to the member that is used.
#[repr(C)]
struct IteratorMeta {
    seq: *mut seq_file,
}

/// `struct bpf_iter__task`, kernel/bpf/task_iter.c.
#[repr(C)]
struct TaskContext {
    meta: *const IteratorMeta,
    task: *mut task_struct,
}

/// Writes a [`ThreadRecord`] for each thread of a traced process. A thread that has begun to exit has no record: its
/// counters are added to the sums of its process.
#[unsafe(link_section = "iter/task")]
#[unsafe(no_mangle)]
extern "C" fn thread_usage(context: *const TaskContext) -> i32 {
    // SAFETY: the kernel passes a `bpf_iter__task` to programs of this iterator.
    let (seq, current) = unsafe { ((*(*context).meta).seq, (*context).task) };
    if current.is_null() {
        return 0;
    }
    let flags: u32 = kernel::read(current as u64, field!(task.task_flags)).unwrap_or(KERNEL_THREAD);
    if flags & (KERNEL_THREAD | EXITING) != 0 {
        return 0;
    }
    let key = task::process_of(current as u64);
    if !process_filter::may_be_traced(key.pid as u32) {
        return 0;
    }
    let record = task::record_of(current, key);
    // SAFETY: the helper reads the record. If the buffer is full, the kernel runs the program again for the task.
    unsafe { bpf_seq_write(seq, (&raw const record).cast(), size_of::<ThreadRecord>() as u32) };
    0
}
