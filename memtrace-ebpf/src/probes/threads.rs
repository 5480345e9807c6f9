//! Programs for runs that count the usage of threads: starts and exits of threads, OOM kills, and the iterator over
//! the counters of threads.
//!
//! Before Linux 6.16, the memory of a process is gone at `sched_process_exit`. There, two more programs run before
//! every exit, to read the counters that an allocator keeps in this memory.

use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::COUNTERS_UNREADABLE;

use crate::limits::KERNEL_ADDRESSES;
use crate::registers::call::{is_native, number, offset};
use crate::settings::field;
use crate::task_iterator::{self, TaskContext};
use crate::thread::{EXITING, KERNEL_THREAD, Thread};
use crate::usage::{allocator_counters, processes, task};
use crate::{emit, gate, kernel, loss, process_filter, thread};

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`, include/trace/events/sched.h. The program runs
/// in the parent, before the child runs.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn count_thread_start(context: RawTracePointContext) -> i32 {
    let parent = Thread::current().pid;
    let child: u32 = kernel::read(context.arg(1), field!(task.task_tgid)).unwrap_or(0);
    if child == parent && gate::is_counting() && process_filter::is_traced(parent) {
        processes::start_thread(&task::process_of(context.arg(1)));
    }
    0
}

/// `TP_PROTO(struct task_struct *p, …)`, include/trace/events/sched.h. The program runs in each thread that exits. It
/// is attached before `process_exit`, which removes the filter decision on a process at the exit of its last thread.
/// It reads the counters of the allocator if the process still has its memory.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn count_thread_exit(_context: RawTracePointContext) -> i32 {
    let pid = Thread::current().pid;
    if gate::is_counting() {
        usage_end_thread(pid, process_filter::is_traced(pid) as u32);
    }
    0
}

/// Counts the exit of the current thread of process `pid`, if the process is traced. `is_traced` is 1 if the filter has
/// selected the process, else 0.
///
/// The exiting threads of a process can reach this program in another order than the kernel counts them
/// (`signal->live`, `do_exit`, kernel/exit.c). So another thread may follow the thread that the kernel counts as the
/// last one. The filter decision is gone then, but the sums of the process still show that the process was traced.
///
/// A chain of calls has 512 bytes of stack (`check_max_stack_depth`, kernel/bpf/verifier.c). The record is made in a
/// function of its own, so that it takes no stack while the filter runs.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn usage_end_thread(pid: u32, is_traced: u32) -> u64 {
    // SAFETY: the helper takes nothing.
    let current = unsafe { bpf_get_current_task_btf() };
    let key = task::process_of(current as u64);
    if is_traced == 0 && !processes::is_ending(&key) {
        return 0;
    }
    // Since Linux 6.16, the tracepoint is before `exit_mm` (`do_exit`, kernel/exit.c).
    if kernel::read_word(current as u64, field!(vma.task_mm)) != 0 {
        allocator_counters::read_current(pid);
    }
    let mut record = task::record_of(current, key);
    record.flags = allocator_counters::add_last(pid, current, &mut record.usage);
    if record.flags & COUNTERS_UNREADABLE != 0 {
        loss::count_without_log(LossReason::CountersUnreadable);
    }
    // The sums are updated before the record is sent, so they contain each exit that user space has read.
    processes::end_thread(&key, current, &record.usage, thread::is_last(current as u64));
    emit::thread_exit(&record);
    0
}

/// `TP_PROTO(struct pt_regs *regs, long id)`, include/trace/events/syscalls.h. The program runs in each thread that
/// calls `exit`, and in the thread that calls `exit_group`. The kernel ends the other threads by SIGKILL
/// (`zap_other_threads`, kernel/signal.c).
#[raw_tracepoint(tracepoint = "sys_enter")]
fn count_exit_call(context: RawTracePointContext) -> i32 {
    let call: u64 = context.arg(1);
    if (call == number::EXIT || call == number::EXIT_GROUP)
        && gate::is_counting()
        && is_native(kernel::read_word(context.arg(0), offset::MODE))
    {
        allocator_counters::read_current(Thread::current().pid);
    }
    0
}

/// `SIG_DFL`, include/uapi/asm-generic/signal-defs.h.
const DEFAULT_HANDLER: u64 = 0;

/// Signals that do not end a process by default, as bits from signal 1 on: SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN,
/// SIGTTOU, SIGURG and SIGWINCH (`SIG_KERNEL_IGNORE_MASK` and `SIG_KERNEL_STOP_MASK`, include/linux/signal.h).
const NOT_FATAL: u64 = (0x7f << 16) | (1 << 27);

/// `TP_PROTO(int sig, struct kernel_siginfo *info, struct k_sigaction *ka)`, include/trace/events/signal.h. The first
/// word of `ka` is the handler. The program runs in the task that gets the signal. If another thread ends the process,
/// the task gets a SIGKILL here too (`get_signal`, kernel/signal.c).
#[raw_tracepoint(tracepoint = "signal_deliver")]
fn count_fatal_signal(context: RawTracePointContext) -> i32 {
    let signal: u64 = context.arg(0);
    let is_fatal = (NOT_FATAL >> (signal.wrapping_sub(1) & 63)) & 1 == 0;
    if is_fatal && gate::is_counting() && kernel::read_word(context.arg(2), 0) == DEFAULT_HANDLER {
        allocator_counters::read_current(Thread::current().pid);
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
            processes::select_victim(&key);
        }
    }
    0
}

/// Writes a [`ThreadRecord`](memtrace_common::wire::ThreadRecord) for each thread of a traced process. A thread that has begun
/// to exit has no record: its counters are added to the sums of its process.
#[unsafe(link_section = "iter/task")]
#[unsafe(no_mangle)]
extern "C" fn thread_usage(context: *const TaskContext) -> i32 {
    let (seq, current) = task_iterator::arguments(context);
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
    task_iterator::write(seq, &task::record_of(current, key));
    0
}
