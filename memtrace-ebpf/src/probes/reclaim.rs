//! The kernel's search for memory: who has to wait for it, what it looks at, and whom it kills in the end.
//!
//! The arguments are those of include/trace/events/vmscan.h, compaction.h and oom.h; where they differ between kernels,
//! settings say which way it is.

use core::arch::asm;

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{COMM, Kind, NO_ORDER, OomRecord, STACK_NOT_TAKEN, StallRecord, counted, work};

use crate::reclaim::Pending;
use crate::stack::Interrupted;
use crate::thread::{Thread, since_start};
use crate::{atomic, emit, gate, kernel, loss, memcg, reclaim, settings, stack};

/// The lists of inactive pages are the even ones, but for that of unevictable pages (`enum lru_list`,
/// include/linux/mmzone.h).
const ACTIVE: u64 = 1;

/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;

/// `TP_PROTO(int order, gfp_t gfp_flags)`; in Linux 7.2 `(gfp_t gfp_flags, int order, struct mem_cgroup *memcg)`.
#[raw_tracepoint(tracepoint = "mm_vmscan_direct_reclaim_begin")]
fn direct_reclaim_begin(context: RawTracePointContext) -> i32 {
    begin(work::DIRECT, order(&context), false, 0)
}

/// As above.
#[raw_tracepoint(tracepoint = "mm_vmscan_memcg_reclaim_begin")]
fn memcg_reclaim_begin(context: RawTracePointContext) -> i32 {
    let told = if settings::tells_group() { apart(context.arg(2)) } else { 0 };
    begin(work::MEMCG, order(&context), true, told)
}

/// `TP_PROTO(struct compact_control *cc, unsigned long zone_start, …)`; in Linux 5.10 `TP_PROTO(unsigned long zone_start, …)`.
#[raw_tracepoint(tracepoint = "mm_compaction_begin")]
fn compaction_begin(context: RawTracePointContext) -> i32 {
    let mut order = NO_ORDER;
    if settings::compaction_order() != 0 {
        // That of compacting everything is -1.
        order = kernel::read(context.arg(0), settings::compaction_order()).unwrap_or(NO_ORDER);
    }
    begin(work::COMPACTION, order, false, 0)
}

/// `TP_PROTO(int nid, int zid, int order)`: again and again, where it is woken before it has fallen asleep.
#[raw_tracepoint(tracepoint = "mm_vmscan_kswapd_wake")]
fn kswapd_wake(context: RawTracePointContext) -> i32 {
    if reclaim::pending(Thread::current()).is_none() {
        begin(work::KSWAPD, context.arg(2), false, 0);
    }
    0
}

/// `TP_PROTO(unsigned long nr_reclaimed)`
#[raw_tracepoint(tracepoint = "mm_vmscan_direct_reclaim_end")]
fn direct_reclaim_end(context: RawTracePointContext) -> i32 {
    end(&context, work::DIRECT, context.arg(0))
}

/// As above.
#[raw_tracepoint(tracepoint = "mm_vmscan_memcg_reclaim_end")]
fn memcg_reclaim_end(context: RawTracePointContext) -> i32 {
    end(&context, work::MEMCG, context.arg(0))
}

#[raw_tracepoint(tracepoint = "mm_compaction_end")]
fn compaction_end(context: RawTracePointContext) -> i32 {
    end(&context, work::COMPACTION, 0)
}

/// `TP_PROTO(int nid)`
#[raw_tracepoint(tracepoint = "mm_vmscan_kswapd_sleep")]
fn kswapd_sleep(context: RawTracePointContext) -> i32 {
    // It is not among the arguments how much was freed.
    let freed = reclaim::pending(Thread::current()).map_or(0, |pending| pending.reclaimed);
    end(&context, work::KSWAPD, freed)
}

/// `TP_PROTO(int classzone_idx, int order, unsigned long nr_requested, unsigned long nr_scanned, unsigned long nr_skipped,
/// unsigned long nr_taken, isolate_mode_t isolate_mode, int lru)`; the mode is there in Linux 6.1 and not in 6.12.
#[raw_tracepoint(tracepoint = "mm_vmscan_lru_isolate")]
fn lru_isolate(context: RawTracePointContext) -> i32 {
    if !gate::is_open() {
        return 0;
    }
    let list = if settings::list_comes_eighth() { apart(context.arg(7)) } else { context.arg(6) };
    let (scanned, taken) = (context.arg(3), context.arg(5));
    let mut pending = reclaim::pending(Thread::current());
    let work = reclaim::searcher(&pending);
    if list & ACTIVE != 0 {
        reclaim::count(work, counted::SCANNED_ACTIVE, scanned);
        return 0;
    }
    reclaim::count(work, counted::SCANNED, scanned);
    reclaim::count(work, counted::TAKEN, taken);
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
    tally(counted::RECLAIMED, context.arg(2))
}

/// `TP_PROTO(int nid, unsigned long nr_taken, unsigned long nr_active, unsigned long nr_deactivated, …)`
#[raw_tracepoint(tracepoint = "mm_vmscan_lru_shrink_active")]
fn lru_shrink_active(context: RawTracePointContext) -> i32 {
    tally(counted::DEACTIVATED, context.arg(3))
}

/// `TP_PROTO(struct folio *folio)`; `mm_vmscan_writepage` in Linux 5.10.
#[raw_tracepoint(tracepoint = "mm_vmscan_write_folio")]
fn write_folio(_context: RawTracePointContext) -> i32 {
    tally(counted::WRITTEN, 1)
}

/// `TP_PROTO(int nid, int usec_timeout, int usec_delayed, int reason)`, after the sleep (Linux 5.16).
#[raw_tracepoint(tracepoint = "mm_vmscan_throttled")]
fn throttled(context: RawTracePointContext) -> i32 {
    if !gate::is_open() {
        return 0;
    }
    let time = u64::from(context.arg::<u64>(2) as u32) * 1000;
    reclaim::count(work::THROTTLED, counted::TIMES, 1);
    reclaim::count(work::THROTTLED, counted::TIME, time);
    if let Some(pending) = reclaim::pending(Thread::current()) {
        pending.throttled += time;
    }
    0
}

/// `TP_PROTO(struct task_struct *task, uid_t uid)`; in older kernels, as in 5.10, `TP_PROTO(int pid)`.
#[raw_tracepoint(tracepoint = "mark_victim")]
fn mark_victim(context: RawTracePointContext) -> i32 {
    if !gate::is_open() {
        return 0;
    }
    let by = Thread::current();
    let victim: u64 = context.arg(0);
    let mut thread = Thread { pid: victim as u32, tid: victim as u32 };
    let mut comm = [0; COMM];
    let mut group = 0;
    if victim >= KERNEL {
        group = memcg::of(victim);
        if let Some(pid) = kernel::read(victim, settings::task_tgid()) {
            thread = Thread { pid, tid: pid };
        }
        if let Some(name) = kernel::read(victim, settings::task_comm()) {
            comm = name;
        }
    }
    // Of the current thread more is known than its number.
    if victim < KERNEL && thread.pid == by.pid {
        group = memcg::own();
        comm = reclaim::comm();
    }
    let header = thread.header(Kind::OomKill);
    let (by_comm, full) = (reclaim::comm(), memcg::full());
    emit::oom_kill(&context, OomRecord { header, comm, by: by.pid, reserved: 0, by_comm, group, full });
    0
}

#[inline(always)]
fn order(context: &RawTracePointContext) -> u32 {
    let order: u64 = if settings::order_comes_second() { apart(context.arg(1)) } else { context.arg(0) };
    order as u32
}

/// The same. Of reads on either side of a branch the compiler would make one of a place that it computes, which the verifier
/// refuses.
#[inline(always)]
fn apart(mut argument: u64) -> u64 {
    // SAFETY: the instruction changes nothing.
    unsafe { asm!("{argument} |= 0", argument = inout(reg) argument) };
    argument
}

#[inline(always)]
fn begin(work: u32, order: u32, for_a_limit: bool, told: u64) -> i32 {
    if gate::is_open() {
        let group = if for_a_limit { memcg::at_its_limit(told) } else { memcg::own() };
        reclaim::begin(Thread::current(), work, order, group);
    }
    0
}

#[inline(always)]
fn tally(what: u32, number: u64) -> i32 {
    if gate::is_open() {
        reclaim::count(reclaim::searcher(&reclaim::pending(Thread::current())), what, number);
    }
    0
}

/// Nothing has ended that is to be told of.
const QUIET: u64 = 0;
/// A traced process was kept waiting.
const WAITED: u64 = 1;
/// A kernel thread has ended something, and there was no room in its books.
const NO_ROOM: u64 = 2;

/// Counts what has ended, and tells of it where it has kept a traced process waiting. What is before and after the walk of the
/// stack has frames of its own, since Linux 6.1 adds up those below each other.
#[inline(always)]
fn end(context: &RawTracePointContext, work: u32, reclaimed: u64) -> i32 {
    match reclaim_ended(work, reclaimed) {
        WAITED => {}
        NO_ROOM => {
            loss::count(context, LossReason::KernelThreadsFull, 1);
            return 0;
        }
        _ => return 0,
    }
    // Kernels that need the plain object do not tell with which registers the thread has entered.
    let stack = match atomic::IS_PLAIN {
        true => STACK_NOT_TAKEN,
        false => {
            let thread = Thread::current();
            stack::take(context, &Interrupted::current(), thread, emit::ring_for_thread(thread))
        }
    };
    if reclaim_tell(stack) == 0 {
        loss::count(context, LossReason::RingFullStall, 1);
    }
    0
}

/// Counts what the thread has ended; says what is to be done.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn reclaim_ended(work: u32, reclaimed: u64) -> u64 {
    let thread = Thread::current();
    let Some(pending) = reclaim::pending(thread) else { return QUIET };
    if pending.work != work {
        return QUIET;
    }
    let scanned = pending.scanned;
    let duration = since_start().saturating_sub(pending.begun);
    pending.duration = duration;
    pending.freed = reclaimed;
    let group = pending.group;
    if !gate::is_open() {
        reclaim::forget(thread);
        return QUIET;
    }
    reclaim::count(work, counted::TIMES, 1);
    reclaim::count(work, counted::TIME, duration);
    memcg::scanned(group, if work == work::MEMCG { scanned } else { 0 });
    if reclaim::is_kernel_thread() {
        reclaim::forget(thread);
        return if reclaim::book(work, duration, scanned, reclaimed) { QUIET } else { NO_ROOM };
    }
    if !gate::is_open_for_current() {
        reclaim::forget(thread);
        return QUIET;
    }
    WAITED
}

/// Tells what the thread has ended, which it then forgets; says whether there was room: 1 or 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn reclaim_tell(stack: u64) -> u64 {
    let thread = Thread::current();
    let Some(&mut Pending { duration, throttled, scanned, freed, work, order, group, .. }) = reclaim::pending(thread)
    else {
        return 0;
    };
    let header = thread.header(Kind::Stall);
    let record = StallRecord { header, stack, duration, throttled, scanned, reclaimed: freed, work, order, group };
    let sent = emit::stall(emit::ring_for_thread(thread), record);
    reclaim::forget(thread);
    sent as u64
}
