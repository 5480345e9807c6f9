//! The current thread, and the current time.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use memtrace_common::wire::{Header, RecordKind, TICK_SHIFT};

use crate::kernel;
use crate::settings::{self, field};

/// `PF_EXITING` (include/linux/sched.h): the thread exits. The kernel sets the flag before the tracepoint `sched_process_exit`,
/// and frees memory afterwards (`do_exit`, kernel/exit.c).
pub const EXITING: u32 = 4;

/// `PF_KTHREAD` (include/linux/sched.h): the thread is a kernel thread.
pub const KERNEL_THREAD: u32 = 0x0020_0000;

/// Ids of a thread and its process, in the root pid namespace.
#[derive(Clone, Copy)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
}

impl Thread {
    #[inline(always)]
    pub fn current() -> Self {
        let both = bpf_get_current_pid_tgid();
        Self { pid: (both >> 32) as u32, tid: both as u32 }
    }

    /// Returns the header of a record about this thread at the current time.
    #[inline(always)]
    pub fn header(self, kind: RecordKind) -> Header {
        self.header_at(kind as u32, since_start())
    }

    /// Returns the header of a record about this thread. `kind` is a [`RecordKind`] with its upper half; `time` is in
    /// nanoseconds since tick 0.
    #[inline(always)]
    pub fn header_at(self, kind: u32, time: u64) -> Header {
        Header { kind, tid: self.tid, pid: self.pid, tick: tick(time) }
    }
}

/// Returns the nanoseconds since tick 0.
#[inline(always)]
pub fn since_start() -> u64 {
    // SAFETY: the helper takes nothing and cannot fail. Tracing programs may not call the helper for the coarse
    // clock.
    let now = unsafe { bpf_ktime_get_ns() };
    now.saturating_sub(settings::start_ns())
}

#[inline(always)]
fn tick(time: u64) -> u32 {
    let ticks = time >> TICK_SHIFT;
    if ticks > u32::MAX as u64 { u32::MAX } else { ticks as u32 }
}

/// Returns true if the current thread exits.
#[inline(always)]
pub fn is_exiting() -> bool {
    has_flag(EXITING)
}

/// Returns true if the current thread is a kernel thread.
#[inline(always)]
pub fn is_kernel_thread() -> bool {
    has_flag(KERNEL_THREAD)
}

#[inline(always)]
fn has_flag(flag: u32) -> bool {
    kernel::read::<u32>(kernel::current_task(), field!(task.task_flags)).is_some_and(|flags| flags & flag != 0)
}

/// Returns true if the exiting `task` is the last thread of its process. The kernel decrements `signal->live` before
/// the tracepoint `sched_process_exit` (`do_exit`, kernel/exit.c).
#[inline(always)]
pub fn is_last(task: u64) -> bool {
    let live =
        kernel::read(task, field!(task.task_signal)).and_then(|signal| kernel::read(signal, field!(task.signal_live)));
    live == Some(0_i32)
}
