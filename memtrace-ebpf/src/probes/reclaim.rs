//! Reclaim, compaction and OOM kills.
//!
//! The tracepoints and their arguments are declared in include/trace/events/vmscan.h, compaction.h and oom.h. The
//! settings have the positions of the arguments that differ between kernels.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::ActivityStep;
use memtrace_common::wire::{COMM, NO_ORDER, OomRecord, RecordKind, StallRecord, reclaim_counter, reclaim_kind};

use crate::emit::Step;
use crate::limits::KERNEL_ADDRESSES;
use crate::origin::Interrupted;
use crate::reclaim::Pending;
use crate::settings::field;
use crate::thread::{self, Thread, since_start};
use crate::verifier::keep_separate;
use crate::{emit, gate, kernel, loss, memcg, reclaim, stack};

/// Bit that is set in the index of an LRU list of active pages (`LRU_ACTIVE` of `enum lru_list`,
/// include/linux/mmzone.h).
const ACTIVE: u64 = 1;

/// `TP_PROTO(int order, gfp_t gfp_flags)`; in Linux 7.2 `(gfp_t gfp_flags, int order, struct mem_cgroup *memcg)`.
#[raw_tracepoint(tracepoint = "mm_vmscan_direct_reclaim_begin")]
fn direct_reclaim_begin(context: RawTracePointContext) -> i32 {
    begin(reclaim_kind::DIRECT, order(&context), false, 0)
}

/// Same arguments as `mm_vmscan_direct_reclaim_begin`.
#[raw_tracepoint(tracepoint = "mm_vmscan_memcg_reclaim_begin")]
fn memcg_reclaim_begin(context: RawTracePointContext) -> i32 {
    let memcg = if field!(reclaim.has_memcg) != 0 { keep_separate(context.arg(2)) } else { 0 };
    begin(reclaim_kind::MEMCG, order(&context), true, memcg)
}

/// `TP_PROTO(struct compact_control *cc, unsigned long zone_start, …)`; in older kernels `TP_PROTO(unsigned long
/// zone_start, …)`.
#[raw_tracepoint(tracepoint = "mm_compaction_begin")]
fn compaction_begin(context: RawTracePointContext) -> i32 {
    let mut order = NO_ORDER;
    if field!(reclaim.compaction_order) != 0 {
        // The order is -1 if all memory is compacted.
        order = kernel::read(context.arg(0), field!(reclaim.compaction_order)).unwrap_or(NO_ORDER);
    }
    begin(reclaim_kind::COMPACTION, order, false, 0)
}

/// `TP_PROTO(int nid, int zid, int order)`. The event repeats if kswapd is woken again before it has fallen asleep.
#[raw_tracepoint(tracepoint = "mm_vmscan_kswapd_wake")]
fn kswapd_wake(context: RawTracePointContext) -> i32 {
    if reclaim::pending(Thread::current()).is_none() {
        begin(reclaim_kind::KSWAPD, context.arg(2), false, 0);
    }
    0
}

/// `TP_PROTO(unsigned long nr_reclaimed)`
#[raw_tracepoint(tracepoint = "mm_vmscan_direct_reclaim_end")]
fn direct_reclaim_end(context: RawTracePointContext) -> i32 {
    end(&context, reclaim_kind::DIRECT, context.arg(0))
}

/// Same argument as `mm_vmscan_direct_reclaim_end`.
#[raw_tracepoint(tracepoint = "mm_vmscan_memcg_reclaim_end")]
fn memcg_reclaim_end(context: RawTracePointContext) -> i32 {
    end(&context, reclaim_kind::MEMCG, context.arg(0))
}

#[raw_tracepoint(tracepoint = "mm_compaction_end")]
fn compaction_end(context: RawTracePointContext) -> i32 {
    end(&context, reclaim_kind::COMPACTION, 0)
}

/// `TP_PROTO(int nid)`
#[raw_tracepoint(tracepoint = "mm_vmscan_kswapd_sleep")]
fn kswapd_sleep(context: RawTracePointContext) -> i32 {
    // The tracepoint has no argument with the number of freed pages.
    let freed = reclaim::pending(Thread::current()).map_or(0, |pending| pending.reclaimed);
    end(&context, reclaim_kind::KSWAPD, freed)
}

/// `TP_PROTO(int classzone_idx, int order, unsigned long nr_requested, unsigned long nr_scanned, unsigned long
/// nr_skipped, unsigned long nr_taken, isolate_mode_t isolate_mode, int lru)`. Linux 6.1 has the argument
/// `isolate_mode`, Linux 6.12 does not.
#[raw_tracepoint(tracepoint = "mm_vmscan_lru_isolate")]
fn lru_isolate(context: RawTracePointContext) -> i32 {
    if !gate::is_open() {
        return 0;
    }
    let list = if field!(reclaim.lru) == 7 { keep_separate(context.arg(7)) } else { context.arg(6) };
    let (scanned, taken) = (context.arg(3), context.arg(5));
    let mut pending = reclaim::pending(Thread::current());
    let kind = reclaim::scanning_kind(&pending);
    if list & ACTIVE != 0 {
        reclaim::count(kind, reclaim_counter::SCANNED_ACTIVE, scanned);
        return 0;
    }
    reclaim::count(kind, reclaim_counter::SCANNED, scanned);
    reclaim::count(kind, reclaim_counter::TAKEN, taken);
    if let Some(pending) = &mut pending {
        pending.scanned += scanned;
    }
    0
}

/// `TP_PROTO(int nid, unsigned long nr_scanned, unsigned long nr_reclaimed, …)`
#[raw_tracepoint(tracepoint = "mm_vmscan_lru_shrink_inactive")]
fn lru_shrink_inactive(context: RawTracePointContext) -> i32 {
    if let Some(pending) = reclaim::pending(Thread::current()) {
        pending.reclaimed += context.arg::<u64>(2);
    }
    count(reclaim_counter::RECLAIMED, context.arg(2))
}

/// `TP_PROTO(int nid, unsigned long nr_taken, unsigned long nr_active, unsigned long nr_deactivated, …)`
#[raw_tracepoint(tracepoint = "mm_vmscan_lru_shrink_active")]
fn lru_shrink_active(context: RawTracePointContext) -> i32 {
    count(reclaim_counter::DEACTIVATED, context.arg(3))
}

/// `TP_PROTO(struct folio *folio)`. The tracepoint is `mm_vmscan_writepage` in older kernels.
#[raw_tracepoint(tracepoint = "mm_vmscan_write_folio")]
fn write_folio(_context: RawTracePointContext) -> i32 {
    count(reclaim_counter::WRITTEN, 1)
}

/// `TP_PROTO(int nid, int usec_timeout, int usec_delayed, int reason)`. The program runs after the sleep.
#[raw_tracepoint(tracepoint = "mm_vmscan_throttled")]
fn throttled(context: RawTracePointContext) -> i32 {
    if !gate::is_open() {
        return 0;
    }
    let time = u64::from(context.arg::<u64>(2) as u32) * 1000;
    reclaim::count(reclaim_kind::THROTTLED, reclaim_counter::TIMES, 1);
    reclaim::count(reclaim_kind::THROTTLED, reclaim_counter::TIME, time);
    if let Some(pending) = reclaim::pending(Thread::current()) {
        pending.throttled += time;
    }
    0
}

/// `TP_PROTO(struct task_struct *task, uid_t uid)`; in older kernels `TP_PROTO(int pid)`.
#[raw_tracepoint(tracepoint = "mark_victim")]
fn mark_victim(context: RawTracePointContext) -> i32 {
    if !gate::is_open() {
        return 0;
    }
    let invoker = Thread::current();
    let victim: u64 = context.arg(0);
    let mut thread = Thread { pid: victim as u32, tid: victim as u32 };
    let mut comm = [0; COMM];
    let mut memcg = 0;
    if victim >= KERNEL_ADDRESSES {
        memcg = memcg::of_task(victim);
        if let Some(pid) = kernel::read(victim, field!(task.task_tgid)) {
            thread = Thread { pid, tid: pid };
        }
        if let Some(name) = kernel::read(victim, field!(task.task_comm)) {
            comm = name;
        }
    }
    // Older kernels pass the id of a thread. They mark the current thread if it fails to allocate while its process is
    // dying (`out_of_memory`, mm/oom_kill.c). The pid, memcg and name of the current thread are known.
    if victim < KERNEL_ADDRESSES && (thread.pid == invoker.pid || thread.tid == invoker.tid) {
        thread = Thread { pid: invoker.pid, tid: invoker.pid };
        memcg = memcg::of_current();
        comm = reclaim::comm();
    }
    let header = thread.header(RecordKind::OomKill);
    let (invoker_comm, full_memcg) = (reclaim::comm(), memcg::full());
    emit::oom_kill(
        &context,
        OomRecord { header, comm, invoker: invoker.pid, reserved: 0, invoker_comm, memcg, full_memcg },
    );
    0
}

#[inline(always)]
fn order(context: &RawTracePointContext) -> u32 {
    let order: u64 = if field!(reclaim.order) == 1 { keep_separate(context.arg(1)) } else { context.arg(0) };
    order as u32
}

/// Begins reclaim or compaction of the current thread. `for_limit` is true if a memcg is at its limit; `memcg` is
/// then its address, or 0 if the tracepoint lacks it.
#[inline(always)]
fn begin(kind: u32, order: u32, for_limit: bool, memcg: u64) -> i32 {
    if gate::is_open() {
        if crate::settings::records_activity() && gate::is_open_for_current() {
            crate::activity::begin_stall(Thread::current());
        }
        let memcg = if for_limit { memcg::at_limit(memcg) } else { memcg::of_current() };
        reclaim::begin(Thread::current(), kind, order, memcg);
    }
    0
}

#[inline(always)]
fn count(counter: u32, number: u64) -> i32 {
    if gate::is_open() {
        reclaim::count(reclaim::scanning_kind(&reclaim::pending(Thread::current())), counter, number);
    }
    0
}

/// Result of [`reclaim_finish`]: nothing is left to do.
const DONE: u64 = 0;
/// Result of [`reclaim_finish`]: the work has stalled a traced process, so a record must be sent.
const STALLED: u64 = 1;
/// Result of [`reclaim_finish`]: the map with the totals of kernel threads is full.
const MAP_FULL: u64 = 2;

/// Counts finished work, and records it if it has stalled a traced process. The code before and after the stack walk is
/// in functions with their own stack frames, because Linux 6.1 limits the sum of nested frames.
#[inline(always)]
fn end(context: &RawTracePointContext, kind: u32, reclaimed: u64) -> i32 {
    match reclaim_finish(kind, reclaimed) {
        STALLED => {}
        MAP_FULL => {
            loss::count(context, LossReason::KernelThreadsFull, 1);
            return 0;
        }
        _ => return 0,
    }
    let thread = Thread::current();
    let stack = stack::take(context, &Interrupted::current(), thread, emit::ring_for_thread(thread));
    if crate::settings::records_activity() && !thread::is_exiting() {
        emit_activity();
    }
    if reclaim_emit(stack) == 0 {
        loss::count(context, LossReason::RingFullStall, 1);
    }
    0
}

/// Counts the thread's finished work. Returns [`DONE`], [`STALLED`] or [`MAP_FULL`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn reclaim_finish(kind: u32, reclaimed: u64) -> u64 {
    let thread = Thread::current();
    let Some(pending) = reclaim::pending(thread) else { return DONE };
    if pending.kind != kind {
        return DONE;
    }
    let scanned = pending.scanned;
    let duration = since_start().saturating_sub(pending.start);
    pending.duration = duration;
    pending.freed = reclaimed;
    let memcg = pending.memcg;
    if !gate::is_open() {
        reclaim::forget(thread);
        return DONE;
    }
    reclaim::count(kind, reclaim_counter::TIMES, 1);
    reclaim::count(kind, reclaim_counter::TIME, duration);
    memcg::add_scanned(memcg, if kind == reclaim_kind::MEMCG { scanned } else { 0 });
    if thread::is_kernel_thread() {
        reclaim::forget(thread);
        return if reclaim::add_to_kernel_thread(kind, duration, scanned, reclaimed) { DONE } else { MAP_FULL };
    }
    if !gate::is_open_for_current() {
        reclaim::forget(thread);
        return DONE;
    }
    STALLED
}

/// Records the thread's finished work as a step of its activity.
#[inline(always)]
fn emit_activity() {
    let thread = Thread::current();
    if let Some(&mut Pending { duration, kind, .. }) = reclaim::pending(thread) {
        let cpu_before = crate::activity::cpu_before_stall(thread);
        let step = Step { site: kind, duration, cpu_before, ..Step::new(ActivityStep::Stall) };
        emit::activity(thread, step);
    }
}

/// Sends the record of the thread's finished work, and removes the work. Returns 0 if the ring is full.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn reclaim_emit(stack: u64) -> u64 {
    let thread = Thread::current();
    let Some(&mut Pending { duration, throttled, scanned, freed, kind, order, memcg, .. }) = reclaim::pending(thread)
    else {
        return 0;
    };
    let header = thread.header(RecordKind::Stall);
    let record = StallRecord { header, stack, duration, throttled, scanned, reclaimed: freed, kind, order, memcg };
    let sent = emit::stall(emit::ring_for_thread(thread), record);
    reclaim::forget(thread);
    sent as u64
}
