//! What becomes of processes and threads. These are raw tracepoints, which need no tracefs, and each has three programs
//! ([`redundant`]).

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::wire::Kind;

use crate::redundant::{self, Deed};
use crate::thread::Thread;
use crate::{emit, gate, kernel, pending, process_filter, rusage, settings, unwind};

/// `TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`, include/trace/events/sched.h: runs in the
/// task, which has the new program already.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec(context: RawTracePointContext) -> i32 {
    exec(&context);
    Deed::new(redundant::Kind::Exec, context.arg(2)).note();
    0
}

#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec_again(context: RawTracePointContext) -> i32 {
    let deed = Deed::new(redundant::Kind::Exec, context.arg(2));
    if deed.is_to_do() {
        exec(&context);
        deed.note();
    }
    0
}

#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec_still(context: RawTracePointContext) -> i32 {
    if Deed::new(redundant::Kind::Exec, context.arg(2)).is_still_to_do() {
        exec(&context);
    }
    0
}

/// Wakes user space, and so may be preempted at once: nothing is missed where this is not run.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec_announce(context: RawTracePointContext) -> i32 {
    let thread = Thread::current();
    if gate::is_open() && process_filter::matters(thread.pid) {
        unwind::announce(thread.pid, context.arg(2));
        // It begins in its linker, where it has one.
        unwind::mapped(thread, unwind::next_instruction(), 1);
    }
    0
}

#[inline(always)]
fn exec(context: &RawTracePointContext) {
    let thread = Thread::current();
    // A thread that is not the leader takes the leader's id when it calls exec.
    pending::forget(context.arg::<u64>(1) as u32);
    pending::forget(thread.tid);
    unwind::forget(thread.pid);
    if gate::is_open() && process_filter::matters(thread.pid) {
        let was_traced = process_filter::traced_before_exec(thread.pid);
        rusage::emit(context, thread, context.arg(0), was_traced);
        emit::process(context, thread, Kind::Exec);
    }
    process_filter::exec(thread.pid);
}

/// `TP_PROTO(struct task_struct *p, …)`: runs in each thread that ends; the last one takes the process with it.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn process_exit(context: RawTracePointContext) -> i32 {
    exit(&context);
    Deed::new(redundant::Kind::Exit, 0).note();
    0
}

#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn process_exit_again(context: RawTracePointContext) -> i32 {
    let deed = Deed::new(redundant::Kind::Exit, 0);
    if deed.is_to_do() {
        exit(&context);
        deed.note();
    }
    0
}

#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn process_exit_still(context: RawTracePointContext) -> i32 {
    if Deed::new(redundant::Kind::Exit, 0).is_still_to_do() {
        exit(&context);
    }
    0
}

#[inline(always)]
fn exit(context: &RawTracePointContext) {
    let thread = Thread::current();
    pending::forget(thread.tid);
    if is_last_thread(context.arg(0)) {
        unwind::forget(thread.pid);
        if gate::is_open() && process_filter::matters(thread.pid) {
            rusage::emit(context, thread, context.arg(0), process_filter::traces(thread.pid));
            emit::process(context, thread, Kind::Exit);
        }
        process_filter::exit(thread.pid);
    }
}

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`: runs in the parent, before the child does.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn process_fork(context: RawTracePointContext) -> i32 {
    fork(&context);
    Deed::new(redundant::Kind::Fork, context.arg(1)).note();
    0
}

#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn process_fork_again(context: RawTracePointContext) -> i32 {
    let deed = Deed::new(redundant::Kind::Fork, context.arg(1));
    if deed.is_to_do() {
        fork(&context);
        deed.note();
    }
    0
}

#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn process_fork_still(context: RawTracePointContext) -> i32 {
    if Deed::new(redundant::Kind::Fork, context.arg(1)).is_still_to_do() {
        fork(&context);
    }
    0
}

#[inline(always)]
fn fork(context: &RawTracePointContext) {
    let thread = Thread::current();
    let parent = thread.pid;
    match kernel::read(context.arg(1), settings::task_tgid()) {
        // A thread has its process' mappings anyway.
        Some(child) if child != parent => {
            unwind::copy(parent, child);
            process_filter::fork(parent, child, context.arg(1));
            if settings::tells_forks() && gate::is_open() && process_filter::matters(child) && !shares_memory(context) {
                emit::fork(context, thread, child);
            }
        }
        _ => {}
    }
}

/// Whether the new process runs in its parent's memory until it runs another program, as after vfork.
#[inline(always)]
fn shares_memory(context: &RawTracePointContext) -> bool {
    let memory = |task| kernel::read::<u64>(task, settings::areas::task_memory());
    memory(context.arg(0)).unwrap_or(0) == memory(context.arg(1)).unwrap_or(1)
}

/// Whether no thread of the task's group is left: `signal->live` was counted down before this tracepoint (`do_exit`,
/// kernel/exit.c).
#[inline(always)]
fn is_last_thread(task: u64) -> bool {
    let live =
        kernel::read(task, settings::task_signal()).and_then(|signal| kernel::read(signal, settings::signal_live()));
    live == Some(0_i32)
}
