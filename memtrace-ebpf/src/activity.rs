//! Activity of threads: their CPU time, allocated bytes, sequence numbers, pending waits and timed calls.
//!
//! The kernel updates the run time of a thread at ticks and context switches only (`update_curr`,
//! kernel/sched/fair.c), which is too coarse for spans of microseconds. So a program at `sched_switch` adds up the
//! time that each thread with activity spends on a CPU, by the monotonic clock. The two times cannot be combined,
//! because the kernel's run time excludes interrupts and stolen time in some configurations (`update_rq_clock_task`,
//! kernel/sched/core.c).

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::btf_maps::{HashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{
    ActivityStep, FIRST_SEQUENCE, FutexWait, MAX_ACTIVE_THREADS, ThreadState, TimedCall, UNKNOWN_SEQUENCE,
    UNKNOWN_USAGE, call_time, futex_use, next_sequence, step_count,
};

use crate::limits::BPF_NOEXIST;
use crate::thread::{self, Thread, since_start};
use crate::{atomic, loss, settings};

const NO_WAIT: FutexWait =
    FutexWait { begin: 0, cpu: 0, address: 0, holder: 0, waker: 0, usage: futex_use::UNKNOWN, reserved: 0 };
const NO_CALL: TimedCall = TimedCall { begin: 0, cpu: 0, function: 0 };

#[btf_map]
static ACTIVE_THREADS: HashMap<u32, ThreadState, MAX_ACTIVE_THREADS> = HashMap::new();

/// Counters of calls by function and duration, at the indices of [`call_time`].
#[btf_map]
static CALL_TIMES: PerCpuArray<u64, { call_time::COUNT as usize }> = PerCpuArray::new();

/// Counters of steps, at the indices of [`step_count`].
#[btf_map]
static STEP_COUNTS: PerCpuArray<u64, { step_count::COUNT as usize }> = PerCpuArray::new();

#[inline(always)]
fn of_thread(tid: u32) -> Option<&'static mut ThreadState> {
    // SAFETY: the pointer refers to a map value. Only the thread itself, the program at its context switches and the
    // program at its wakes use the entry.
    ACTIVE_THREADS.get_ptr_mut(&tid).map(|state| unsafe { &mut *state })
}

/// Returns the state of the current thread; inserts a new one if the thread has none.
#[inline(always)]
fn of_current(thread: Thread) -> Option<&'static mut ThreadState> {
    let known = of_thread(thread.tid);
    if known.is_some() {
        return known;
    }
    let new = ThreadState {
        ran: 0,
        since: since_start(),
        allocated: 0,
        wait: NO_WAIT,
        stall_cpu: 0,
        call: NO_CALL,
        pid: thread.pid,
        sequence: FIRST_SEQUENCE,
    };
    if ACTIVE_THREADS.insert(&thread.tid, &new, BPF_NOEXIST).is_err() {
        loss::count_without_log(LossReason::ActiveThreadsFull);
    }
    of_thread(thread.tid)
}

/// CPU time and allocated bytes of a thread between its first activity and a step, and the sequence number of the step.
#[derive(Clone, Copy)]
pub struct StepState {
    pub cpu: u64,
    pub allocated: u64,
    pub sequence: u32,
}

/// Returns the state of the current thread at a step, and counts the step. `step`: number of the [`ActivityStep`].
///
/// The step counts even if the ring has no room for its record, so that user space sees the gap. Only the thread itself takes its
/// steps, one after the other. So the records of a thread are in the ring in the order of their sequence numbers.
#[inline(always)]
pub fn take_step(thread: Thread, now: u64, step: u32) -> StepState {
    let Some(state) = of_current(thread) else {
        return StepState { cpu: UNKNOWN_USAGE, allocated: UNKNOWN_USAGE, sequence: UNKNOWN_SEQUENCE };
    };
    let sequence = state.sequence;
    if ActivityStep::is_counted(step) {
        state.sequence = next_sequence(sequence);
    }
    StepState { cpu: cpu_time(state, now), allocated: state.allocated, sequence }
}

/// Counts a step in the totals of all threads. `step`: number of the [`ActivityStep`].
#[inline(always)]
pub fn count_step(step: u32, site: u32) {
    if let Some(word) = STEP_COUNTS.get_ptr_mut(step_count::index(step, site)) {
        // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
        unsafe { atomic::add(word, 1) };
    }
}

/// Returns the sequence number of the next step of a thread.
#[inline(always)]
pub fn sequence(tid: u32) -> u32 {
    of_thread(tid).map_or(UNKNOWN_SEQUENCE, |state| state.sequence)
}

#[inline(always)]
fn cpu_time(state: &ThreadState, now: u64) -> u64 {
    let ran = |state: &ThreadState| {
        // SAFETY: both fields are words of a map value. If a context switch occurs between the two reads, the program
        // at the switch changes the fields.
        let (ran, since) = unsafe { (read_volatile(&raw const state.ran), read_volatile(&raw const state.since)) };
        (ran, since)
    };
    let (mut cpu, mut since) = ran(state);
    let again = ran(state);
    if again.1 != since {
        (cpu, since) = again;
    }
    if since != 0 {
        cpu += now.saturating_sub(since);
    }
    cpu
}

/// Handles a context switch from the thread `from` to the thread `to`.
#[inline(always)]
pub fn switch(from: u32, to: u32) {
    let (from, to) = (of_thread(from), of_thread(to));
    if from.is_none() && to.is_none() {
        return;
    }
    let now = since_start();
    if let Some(from) = from
        && from.since != 0
    {
        // SAFETY: words of a map value.
        unsafe { write_volatile(&raw mut from.ran, from.ran + now.saturating_sub(from.since)) };
        // SAFETY: as above.
        unsafe { write_volatile(&raw mut from.since, 0) };
    }
    if let Some(to) = to {
        // SAFETY: as above.
        unsafe { write_volatile(&raw mut to.since, now) };
    }
}

/// Adds an allocation to the state of the current thread, if the thread has one.
#[inline(always)]
pub fn add_allocated(thread: Thread, size: u64) {
    if settings::records_activity()
        && let Some(state) = of_thread(thread.tid)
    {
        state.allocated += size;
    }
}

/// Begins a wait of the current thread for the futex at `address`. `holder` is the thread that holds the futex, or 0.
/// `usage` is a constant of [`futex_use`].
#[inline(always)]
pub fn begin_wait(thread: Thread, address: u64, holder: u32, usage: u32) {
    if let Some(state) = of_current(thread) {
        let begin = since_start();
        let cpu = cpu_time(state, begin);
        state.wait = FutexWait { begin, cpu, address, holder, waker: 0, usage, reserved: 0 };
    }
}

/// Returns the pending futex wait of a thread; `None` if the thread does not wait for a futex.
#[inline(always)]
pub fn pending_wait(tid: u32) -> Option<&'static mut FutexWait> {
    let wait = &mut of_thread(tid)?.wait;
    // SAFETY: a word of a map value.
    let begin = unsafe { read_volatile(&raw const wait.begin) };
    if begin == 0 { None } else { Some(wait) }
}

/// Records that the thread `waker` wakes the waiting thread. `exits` is true if the waker exits. If there are several
/// wakes, the last one is kept, because it ends the wait.
#[inline(always)]
pub fn set_waker(wait: &mut FutexWait, waker: u32, exits: bool) {
    // SAFETY: a word of a map value. The waiting thread reads it when it runs again.
    unsafe { write_volatile(&raw mut wait.waker, waker) };
    if wait.usage == futex_use::MAYBE_JOIN || wait.usage == futex_use::JOIN {
        let usage = if exits { futex_use::JOIN } else { futex_use::MAYBE_JOIN };
        // SAFETY: as above.
        unsafe { write_volatile(&raw mut wait.usage, usage) };
    }
}

/// Ends the pending futex wait of the current thread.
#[inline(always)]
pub fn end_wait(thread: Thread) {
    if let Some(state) = of_thread(thread.tid) {
        state.wait.begin = 0;
    }
}

/// Begins a memory stall of the current thread. An exiting thread is ignored, because its stall would insert a new state after
/// the exit.
#[inline(always)]
pub fn begin_stall(thread: Thread) {
    if !thread::is_exiting()
        && let Some(state) = of_current(thread)
    {
        state.stall_cpu = cpu_time(state, since_start());
    }
}

/// Returns the CPU time of the current thread at the begin of its last stall.
#[inline(always)]
pub fn cpu_before_stall(thread: Thread) -> u64 {
    of_thread(thread.tid).map_or(0, |state| state.stall_cpu)
}

/// Begins the timing of an allocator call. `function` is the index of the function in the table of functions.
#[inline(always)]
pub fn begin_call(thread: Thread, function: u16) {
    if let Some(state) = of_current(thread) {
        let begin = since_start();
        let cpu = cpu_time(state, begin);
        state.call = TimedCall { begin, cpu, function: function as u64 };
    }
}

/// Ends the pending allocator call, and counts it by its duration. Returns the call and its duration in nanoseconds.
#[inline(always)]
pub fn end_call(thread: Thread) -> Option<(TimedCall, u64)> {
    let state = of_thread(thread.tid)?;
    let call = state.call;
    if call.begin == 0 {
        return None;
    }
    state.call.begin = 0;
    let duration = since_start().saturating_sub(call.begin);
    add(call_time::bucket(call.function as u32, duration), 1);
    add(call_time::sum(call.function as u32), duration);
    Some((call, duration))
}

#[inline(always)]
fn add(index: u32, number: u64) {
    if let Some(word) = CALL_TIMES.get_ptr_mut(index) {
        // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
        unsafe { atomic::add(word, number) };
    }
}

/// Removes the state of a thread that exits.
#[inline(always)]
pub fn forget(tid: u32) {
    let _ = ACTIVE_THREADS.remove(&tid);
}
