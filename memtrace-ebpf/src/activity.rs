//! Activity of threads: their CPU time, allocated bytes, pending waits and timed calls.
//!
//! The kernel updates the run time of a thread at ticks and switches only (`update_curr`, kernel/sched/fair.c), which is too
//! coarse for slices of microseconds. So a program at each switch adds up the time for which a thread with activity was on
//! a CPU. All times are those of one clock. The run time of the kernel leaves out interrupts and stolen time in some
//! configurations (`update_rq_clock_task`, kernel/sched/core.c), so the two cannot be added.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::btf_maps::{HashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{FutexWait, MAX_ACTIVE_THREADS, ThreadState, TimedCall, UNKNOWN_USAGE, call_time};

use crate::limits::BPF_NOEXIST;
use crate::thread::{Thread, since_start};
use crate::{atomic, loss, settings};

const NO_WAIT: FutexWait = FutexWait { begin: 0, cpu: 0, address: 0, holder: 0 };
const NO_CALL: TimedCall = TimedCall { begin: 0, cpu: 0, function: 0 };

#[btf_map]
static ACTIVE_THREADS: HashMap<u32, ThreadState, MAX_ACTIVE_THREADS> = HashMap::new();

/// Numbers of calls by function and duration.
#[btf_map]
static CALL_TIMES: PerCpuArray<u64, { call_time::COUNT as usize }> = PerCpuArray::new();

#[inline(always)]
fn of_thread(tid: u32) -> Option<&'static mut ThreadState> {
    // SAFETY: a map value's pointer. The thread alone uses its entry, and the switches to and from it.
    ACTIVE_THREADS.get_ptr_mut(&tid).map(|state| unsafe { &mut *state })
}

/// Returns the state of the current thread, which it gets now if it has none.
#[inline(always)]
fn of_current(thread: Thread) -> Option<&'static mut ThreadState> {
    let known = of_thread(thread.tid);
    if known.is_some() {
        return known;
    }
    let new = ThreadState { ran: 0, since: since_start(), allocated: 0, wait: NO_WAIT, stall_cpu: 0, call: NO_CALL };
    if ACTIVE_THREADS.insert(&thread.tid, &new, BPF_NOEXIST).is_err() {
        loss::count_without_log(LossReason::ActiveThreadsFull);
    }
    of_thread(thread.tid)
}

/// CPU time and allocated bytes of a thread since its first record.
#[derive(Clone, Copy)]
pub struct Usage {
    pub cpu: u64,
    pub allocated: u64,
}

/// Returns the usage of the current thread at `now`.
#[inline(always)]
pub fn usage(thread: Thread, now: u64) -> Usage {
    match of_current(thread) {
        Some(state) => Usage { cpu: cpu_time(state, now), allocated: state.allocated },
        None => Usage { cpu: UNKNOWN_USAGE, allocated: UNKNOWN_USAGE },
    }
}

#[inline(always)]
fn cpu_time(state: &ThreadState, now: u64) -> u64 {
    let ran = |state: &ThreadState| {
        // SAFETY: both are words of a map value. A switch between the two reads changes them.
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

/// Handles the switch from one thread to another.
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

/// Counts an allocation of the current thread, if it has activity.
#[inline(always)]
pub fn add_allocated(thread: Thread, size: u64) {
    if settings::records_activity()
        && let Some(state) = of_thread(thread.tid)
    {
        state.allocated += size;
    }
}

/// Begins a wait of the current thread for the futex at `address`.
#[inline(always)]
pub fn begin_wait(thread: Thread, address: u64, holder: u32) {
    if let Some(state) = of_current(thread) {
        let begin = since_start();
        let cpu = cpu_time(state, begin);
        state.wait = FutexWait { begin, cpu, address, holder: holder as u64 };
    }
}

/// Ends the wait of the current thread for a futex, and returns it.
#[inline(always)]
pub fn end_wait(thread: Thread) -> Option<FutexWait> {
    let state = of_thread(thread.tid)?;
    let wait = state.wait;
    state.wait.begin = 0;
    if wait.begin == 0 { None } else { Some(wait) }
}

/// Begins a stall of the current thread for memory.
#[inline(always)]
pub fn begin_stall(thread: Thread) {
    if let Some(state) = of_current(thread) {
        state.stall_cpu = cpu_time(state, since_start());
    }
}

/// Returns the CPU time of the current thread at the begin of its last stall.
#[inline(always)]
pub fn cpu_before_stall(thread: Thread) -> u64 {
    of_thread(thread.tid).map_or(0, |state| state.stall_cpu)
}

/// Begins a call of an allocator function.
#[inline(always)]
pub fn begin_call(thread: Thread, function: u16) {
    if let Some(state) = of_current(thread) {
        let begin = since_start();
        let cpu = cpu_time(state, begin);
        state.call = TimedCall { begin, cpu, function: function as u64 };
    }
}

/// Ends the call of an allocator function, and counts it by its duration. Returns the call and its duration.
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
        // SAFETY: the pointer is a map value's, 8 bytes and aligned.
        unsafe { atomic::add(word, number) };
    }
}

/// Forgets a thread that exits.
#[inline(always)]
pub fn forget(tid: u32) {
    let _ = ACTIVE_THREADS.remove(&tid);
}
