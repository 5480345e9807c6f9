//! Reclaim and compaction: the work in progress of each thread, and totals.

use aya_ebpf::btf_maps::{HashMap, LruHashMap, PerCpuArray};
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{
    COMM, KernelThread, KernelThreadTotals, MAX_KERNEL_THREADS, RECLAIM_COUNTERS, reclaim_counter, reclaim_kind,
};

use crate::atomic;
use crate::limits::BPF_NOEXIST;
use crate::thread::{self, Thread, since_start};

/// Reclaim or compaction in progress. If its end is missed, the entry stays until its thread begins other work or the
/// map evicts it.
#[derive(Clone, Copy)]
pub struct Pending {
    /// Begin of the work, in nanoseconds since tick 0.
    pub start: u64,
    pub scanned: u64,
    pub reclaimed: u64,
    pub throttled: u64,
    /// Duration in nanoseconds, set at the end of the work.
    pub duration: u64,
    /// Number of freed pages, set at the end of the work.
    pub freed: u64,
    /// Id of the memcg; 0 if it is not known.
    pub memcg: u64,
    pub kind: u32,
    pub order: u32,
}

#[btf_map]
static SEARCHES: LruHashMap<u32, Pending, 16384> = LruHashMap::new();

#[btf_map]
static RECLAIM: PerCpuArray<u64, { RECLAIM_COUNTERS as usize }> = PerCpuArray::new();

#[btf_map]
static KERNEL_THREADS: HashMap<KernelThread, KernelThreadTotals, MAX_KERNEL_THREADS> = HashMap::new();

/// Begins reclaim or compaction by the thread. `kind` is a constant of [`reclaim_kind`], `memcg` an id or 0.
#[inline(always)]
pub fn begin(thread: Thread, kind: u32, order: u32, memcg: u64) {
    let new = Pending {
        start: since_start(),
        scanned: 0,
        reclaimed: 0,
        throttled: 0,
        duration: 0,
        freed: 0,
        memcg,
        kind,
        order,
    };
    let _ = SEARCHES.insert(&thread.tid, &new, 0);
}

/// Returns the thread's work in progress.
#[inline(always)]
pub fn pending(thread: Thread) -> Option<&'static mut Pending> {
    // SAFETY: the pointer refers to a map value. Only the thread of the entry uses it.
    SEARCHES.get_ptr_mut(&thread.tid).map(|pending| unsafe { &mut *pending })
}

/// Removes the thread's work in progress.
#[inline(always)]
pub fn forget(thread: Thread) {
    let _ = SEARCHES.remove(&thread.tid);
}

/// Adds `number` to a counter. `kind` is a constant of [`reclaim_kind`], `counter` one of [`reclaim_counter`].
#[inline(always)]
pub fn count(kind: u32, counter: u32, number: u64) {
    if let Some(word) = RECLAIM.get_ptr_mut(kind * reclaim_counter::COUNT + counter) {
        // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
        unsafe { atomic::add(word, number) };
    }
}

/// Returns the kind of reclaim for which the current thread scans pages. If no work is in progress, the kind depends on
/// the thread's name.
#[inline(always)]
pub fn scanning_kind(pending: &Option<&'static mut Pending>) -> u32 {
    match pending {
        Some(pending) => pending.kind,
        // kswapd was awake when recording started.
        None if thread::is_kernel_thread() && comm()[..6] == *b"kswapd" => reclaim_kind::KSWAPD,
        None => reclaim_kind::OTHER,
    }
}

/// Returns the name of the current thread.
#[inline(always)]
pub fn comm() -> [u8; COMM] {
    let mut comm = [0; COMM];
    // SAFETY: the helper writes at most the given size.
    unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast(), COMM as u32) };
    comm
}

/// Adds finished work to the totals of the current kernel thread. Returns false if the map is full.
#[inline(always)]
pub fn add_to_kernel_thread(kind: u32, time: u64, scanned: u64, reclaimed: u64) -> bool {
    reclaim_add_to_kernel_thread(kind, time, scanned, reclaimed) != 0
}

/// Does the work of [`add_to_kernel_thread`]. The function is global, because the programs at the end of reclaim have little
/// stack left after a walk, and Linux 6.1 limits the sum of nested frames.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn reclaim_add_to_kernel_thread(kind: u32, time: u64, scanned: u64, reclaimed: u64) -> u64 {
    let key = KernelThread { comm: comm(), kind, reserved: 0 };
    let mut totals = KERNEL_THREADS.get_ptr_mut(&key);
    if totals.is_none() {
        let new = KernelThreadTotals { times: 0, time: 0, scanned: 0, reclaimed: 0 };
        // If another thread of that name has inserted the entry first, both add to it.
        let _ = KERNEL_THREADS.insert(&key, &new, BPF_NOEXIST);
        totals = KERNEL_THREADS.get_ptr_mut(&key);
    }
    let Some(totals) = totals else { return 0 };
    // SAFETY: the pointers refer to aligned words of a map value.
    unsafe {
        atomic::add(&raw mut (*totals).times, 1);
        atomic::add(&raw mut (*totals).time, time);
        atomic::add(&raw mut (*totals).scanned, scanned);
        atomic::add(&raw mut (*totals).reclaimed, reclaimed);
    }
    1
}
