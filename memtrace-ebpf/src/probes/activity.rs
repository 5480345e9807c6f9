//! Activity of threads: functions and user probes that begin and end spans, waits for locks and futexes, and events.

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::{raw_tracepoint, uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RawTracePointContext, RetProbeContext};
use memtrace_common::wire::{ActivityCookie, ActivityStep, UNKNOWN_SEQUENCE, futex_use};

use crate::activity;
use crate::emit::{self, ACTIVITY_RING, Step};
use crate::kernel::{self, read_word};
use crate::origin::Interrupted;
use crate::registers::POPPED_BY_RETURN;
use crate::registers::call::{is_native, number, offset};
use crate::settings::field;
use crate::thread::{Thread, since_start};
use crate::{arguments, gate, private_stack, process_filter, registers, stack};

#[uprobe]
fn activity_entry(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::count_hit_for_current() {
        let registers = registers::of(&context);
        let places = arguments::cookie(&context);
        let cookie = ActivityCookie(places.0);
        // A conditional jump leaves the function only if it is taken.
        if cookie.condition().is_some_and(|condition| !registers::is_taken(registers, condition)) {
            return 0;
        }
        let argument = |place| arguments::argument(&context, places, place).unwrap_or(0);
        let (value, name, text) = (argument(0), argument(1), argument(2));
        let (step, site, value) = (cookie.step(), cookie.site(), cookie.cut(value));
        let stack = registers::stack_pointer(registers);
        let step = Step { step, site, value, stack, name, text, ..Step::new(ActivityStep::Begin) };
        emit::activity(Thread::current(), step);
    }
    0
}

#[uretprobe]
fn activity_return(context: RetProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::count_hit_for_current() {
        let site = ActivityCookie(arguments::cookie(&context).0).site();
        let stack = registers::stack_pointer(registers::of(&context)).wrapping_sub(POPPED_BY_RETURN);
        emit::activity(Thread::current(), Step { site, stack, ..Step::new(ActivityStep::End) });
    }
    0
}

/// `TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next, …)`, include/trace/events/sched.h. The
/// program runs in `prev`.
#[raw_tracepoint(tracepoint = "sched_switch")]
fn activity_switch(context: RawTracePointContext) -> i32 {
    let next: u32 = kernel::read(context.arg(2), field!(thread.task_pid)).unwrap_or(0);
    activity::switch(Thread::current().tid, next);
    0
}

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`, include/trace/events/sched.h. The program runs
/// in the parent, before the child runs.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn activity_thread_start(context: RawTracePointContext) -> i32 {
    let parent = Thread::current();
    let child: u64 = context.arg(1);
    if gate::is_open()
        && kernel::read(child, field!(task.task_tgid)) == Some(parent.pid)
        && process_filter::is_traced(parent.pid)
        && let Some(tid) = kernel::read(child, field!(thread.task_pid))
    {
        emit::lifetime(Thread { pid: parent.pid, tid }, ActivityStep::Start, UNKNOWN_SEQUENCE);
    }
    0
}

/// `TP_PROTO(struct task_struct *p, …)`, include/trace/events/sched.h. The program runs in each thread that exits.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn activity_thread_exit(_context: RawTracePointContext) -> i32 {
    let thread = Thread::current();
    if gate::is_open_for_current() {
        emit::lifetime(thread, ActivityStep::Exit, activity::sequence(thread.tid));
    }
    // After the gate has closed, the states stay. They show user space which threads have lost their last records.
    if gate::is_open() {
        activity::forget(thread.tid);
    }
    0
}

/// `TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`, include/trace/events/sched.h. If a thread other
/// than the leader calls exec, it takes the leader's id (`de_thread`, fs/exec.c). `old_pid` is its previous id, which has no exit.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn activity_exec(context: RawTracePointContext) -> i32 {
    let thread = Thread::current();
    let former = Thread { tid: context.arg::<u64>(1) as u32, ..thread };
    if former.tid == thread.tid || !gate::is_open() {
        return 0;
    }
    if gate::is_open_for_current() {
        emit::end_at_exec(former, activity::sequence(former.tid));
    }
    activity::forget(former.tid);
    0
}

/// Operations of the futex system call, the mask that removes their flags, and the flag of futexes that no other
/// process uses (include/uapi/linux/futex.h).
mod operation {
    pub const MASK: u64 = 0x7f;
    pub const PRIVATE: u64 = 0x80;
    pub const WAIT: u64 = 0;
    pub const WAKE: u64 = 1;
    pub const REQUEUE: u64 = 3;
    pub const CMP_REQUEUE: u64 = 4;
    pub const WAKE_OP: u64 = 5;
    pub const LOCK_PI: u64 = 6;
    pub const UNLOCK_PI: u64 = 7;
    pub const WAIT_BITSET: u64 = 9;
    pub const WAKE_BITSET: u64 = 10;
    pub const WAIT_REQUEUE_PI: u64 = 11;
    pub const LOCK_PI2: u64 = 13;
}

/// Mask of the holder's TID in the word of a priority-inheritance futex (`FUTEX_TID_MASK`,
/// include/uapi/linux/futex.h).
const HOLDER: u32 = 0x3fff_ffff;

/// Value of a glibc lock that has waiters (nptl/lowlevellock.c).
const GLIBC_CONTENDED: u32 = 2;

/// Offset of the holder's TID from the futex word in a glibc mutex (`__owner` and `__lock` of
/// `struct __pthread_mutex_s`, sysdeps/nptl/bits/struct_mutex.h). User space checks that the TID is a thread of the
/// process.
const GLIBC_OWNER: u64 = 8;

/// `TP_PROTO(struct pt_regs *regs, long id)`, include/trace/events/syscalls.h.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn futex_enter(context: RawTracePointContext) -> i32 {
    let registers: u64 = context.arg(0);
    if context.arg::<u64>(1) != number::FUTEX
        || !gate::is_open_for_current()
        || !is_native(read_word(registers, offset::MODE))
    {
        return 0;
    }
    let address = read_word(registers, offset::FIRST);
    let flagged = read_word(registers, offset::SECOND);
    let expected = read_word(registers, offset::THIRD) as u32;
    let is_shared = flagged & operation::PRIVATE == 0;
    let (holder, usage) = match flagged & operation::MASK {
        operation::LOCK_PI | operation::LOCK_PI2 => (word(address) & HOLDER, futex_use::UNKNOWN),
        operation::WAIT | operation::WAIT_BITSET if expected == GLIBC_CONTENDED => {
            (word(address.wrapping_add(GLIBC_OWNER)), futex_use::UNKNOWN)
        }
        operation::WAIT | operation::WAIT_BITSET if expected == 0 => (0, futex_use::EVENT),
        // When a thread exits, the kernel wakes this futex without the private flag (`mm_release`, kernel/fork.c). So
        // the wait for the exit has no private flag either.
        operation::WAIT | operation::WAIT_BITSET if is_shared && expected <= HOLDER => {
            (expected, futex_use::MAYBE_JOIN)
        }
        operation::WAIT | operation::WAIT_BITSET | operation::WAIT_REQUEUE_PI => (0, futex_use::UNKNOWN),
        _ => return 0,
    };
    activity::begin_wait(Thread::current(), address, holder, usage);
    0
}

/// `TP_PROTO(struct task_struct *p)`, include/trace/events/sched.h. The program runs in the waker, or in the thread that the
/// waker has interrupted. The program runs for each wake on the machine, so it first looks up the woken thread.
///
/// The current thread is the waker if it belongs to the process of the woken thread, and exits or is in a system call
/// that wakes threads at the same address. Timers and signals wake threads from other contexts. If a timer interrupts such a
/// system call and wakes a thread that waits at the same address, the wait ends with an error, and `futex_exit` drops the
/// waker.
#[raw_tracepoint(tracepoint = "sched_waking")]
fn futex_waking(context: RawTracePointContext) -> i32 {
    let woken: u64 = context.arg(0);
    let Some(tid) = kernel::read(woken, field!(thread.task_pid)) else { return 0 };
    let Some(wait) = activity::pending_wait(tid) else { return 0 };
    let waker = Thread::current();
    if kernel::read(woken, field!(task.task_tgid)) != Some(waker.pid) {
        return 0;
    }
    let registers = Interrupted::current().registers;
    if !is_native(read_word(registers, offset::MODE)) {
        return 0;
    }
    let call = read_word(registers, offset::NUMBER);
    let exits = call == number::EXIT;
    let is_at_address = || read_word(registers, offset::FIRST) == wait.address;
    if exits || call == number::FUTEX && wakes(read_word(registers, offset::SECOND)) && is_at_address() {
        activity::set_waker(wait, waker.tid, exits);
    }
    0
}

/// Returns true for an operation that wakes threads at its first address. `flagged` is the operation with its flags.
#[inline(always)]
fn wakes(flagged: u64) -> bool {
    matches!(
        flagged & operation::MASK,
        operation::WAKE
            | operation::WAKE_BITSET
            | operation::WAKE_OP
            | operation::REQUEUE
            | operation::CMP_REQUEUE
            | operation::UNLOCK_PI
    )
}

/// Reads 4 bytes of the process; 0 if they cannot be read.
#[inline(always)]
fn word(address: u64) -> u32 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u32) }.unwrap_or(0)
}

/// `TP_PROTO(struct pt_regs *regs, long ret)`, include/trace/events/syscalls.h.
#[raw_tracepoint(tracepoint = "sys_exit")]
fn futex_exit(context: RawTracePointContext) -> i32 {
    if read_word(context.arg(0), offset::NUMBER) != number::FUTEX {
        return 0;
    }
    let thread = Thread::current();
    let Some(wait) = activity::pending_wait(thread.tid) else { return 0 };
    let duration = since_start().saturating_sub(wait.begin);
    if duration >= field!(min_wait) && gate::is_open_for_current() {
        let stack = stack::take(&context, &Interrupted::current(), thread, ACTIVITY_RING);
        activity_record_wait(stack, duration, context.arg(1));
    }
    activity::end_wait(thread);
    0
}

/// Records the pending futex wait of the current thread. `result`: result of the system call. A chain of calls has 512
/// bytes of stack (`check_max_stack_depth`, kernel/bpf/verifier.c). The record is made in a function of its own, so that it
/// takes no stack during the walk.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn activity_record_wait(stack: u64, duration: u64, result: u64) -> u64 {
    let thread = Thread::current();
    let Some(wait) = activity::pending_wait(thread.tid) else { return 0 };
    let (site, value, holder, cpu_before) = (wait.usage, wait.address, wait.holder, wait.cpu);
    // A wait that a timer or a signal has ended returns an error.
    let waker = if result == 0 { wait.waker } else { 0 };
    let step = Step { site, value, holder, waker, duration, cpu_before, stack, ..Step::new(ActivityStep::FutexWait) };
    emit::activity(thread, step);
    0
}
