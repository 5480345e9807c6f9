//! Who looks for memory, and what is done to find it.

use aya_ebpf::btf_maps::{HashMap, LruHashMap, PerCpuArray};
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{
    COMM, KernelThread, KernelThreadBook, MAX_KERNEL_THREADS, RECLAIM_COUNTERS, counted, work,
};

use crate::thread::{Thread, since_start};
use crate::{atomic, gate, kernel, settings};

/// `PF_KTHREAD`, include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Work in progress. What was missed the end of is forgotten when its thread begins anew, or when there is too much.
#[derive(Clone, Copy)]
pub struct Pending {
    /// When it began: nanoseconds since ticks began.
    pub begun: u64,
    pub scanned: u64,
    pub reclaimed: u64,
    pub throttled: u64,
    /// How long it took, and how many pages it has freed, once it has ended.
    pub duration: u64,
    pub freed: u64,
    /// The control group that it is for, 0 where that is not known.
    pub group: u64,
    pub work: u32,
    pub order: u32,
}

#[btf_map]
static SEARCHES: LruHashMap<u32, Pending, 16384> = LruHashMap::new();

#[btf_map]
static RECLAIM: PerCpuArray<u64, { RECLAIM_COUNTERS as usize }> = PerCpuArray::new();

#[btf_map]
static KERNEL_THREADS: HashMap<KernelThread, KernelThreadBook, MAX_KERNEL_THREADS> = HashMap::new();

/// The thread begins to look for memory.
#[inline(always)]
pub fn begin(thread: Thread, work: u32, order: u32, group: u64) {
    let new = Pending {
        begun: since_start(),
        scanned: 0,
        reclaimed: 0,
        throttled: 0,
        duration: 0,
        freed: 0,
        group,
        work,
        order,
    };
    let _ = SEARCHES.insert(&thread.tid, &new, 0);
}

/// What the thread does to find memory, if it is known to.
#[inline(always)]
pub fn pending(thread: Thread) -> Option<&'static mut Pending> {
    // SAFETY: a map value's pointer, and only the thread itself touches what it does.
    SEARCHES.get_ptr_mut(&thread.tid).map(|pending| unsafe { &mut *pending })
}

/// The thread has ended what it did.
#[inline(always)]
pub fn forget(thread: Thread) {
    let _ = SEARCHES.remove(&thread.tid);
}

/// Counts something of one [`work`]: `what` is one of [`counted`]'s.
#[inline(always)]
pub fn count(work: u32, what: u32, number: u64) {
    if let Some(word) = RECLAIM.get_ptr_mut(work * counted::COUNT + what) {
        // SAFETY: the pointer is a map value's, 8 bytes and aligned.
        unsafe { atomic::add(word, number) };
    }
}

/// Whose search for pages this is: what the thread is known to do, or else what its name says.
#[inline(always)]
pub fn searcher(pending: &Option<&'static mut Pending>) -> u32 {
    match pending {
        Some(pending) => pending.work,
        // It was awake when tracing began.
        None if is_kernel_thread() && comm()[..6] == *b"kswapd" => work::KSWAPD,
        None => work::OTHER,
    }
}

/// Whether the current task is one of the kernel's own.
#[inline(always)]
pub fn is_kernel_thread() -> bool {
    kernel::read::<u32>(kernel::task(), settings::task_flags()).is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

/// The current thread's name.
#[inline(always)]
pub fn comm() -> [u8; COMM] {
    let mut comm = [0; COMM];
    // SAFETY: the helper writes at most as much as there is room for.
    unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast(), COMM as u32) };
    comm
}

/// Adds what the current task, a kernel thread, has done; says whether there was room.
#[inline(always)]
pub fn book(work: u32, time: u64, scanned: u64, reclaimed: u64) -> bool {
    reclaim_book(work, time, scanned, reclaimed) != 0
}

/// Says whether there was room: 1 or 0. Has a frame of its own, since the programs that end a wait have little left beside
/// what it takes to walk a stack, which Linux 6.1 adds up.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn reclaim_book(work: u32, time: u64, scanned: u64, reclaimed: u64) -> u64 {
    let key = KernelThread { comm: comm(), work, reserved: 0 };
    let mut book = KERNEL_THREADS.get_ptr_mut(&key);
    if book.is_none() {
        let new = KernelThreadBook { times: 0, time: 0, scanned: 0, reclaimed: 0 };
        // Where somebody of the same name was faster, both are counted there.
        let _ = KERNEL_THREADS.insert(&key, &new, gate::IF_NEW);
        book = KERNEL_THREADS.get_ptr_mut(&key);
    }
    let Some(book) = book else { return 0 };
    // SAFETY: the pointers are into a map's value, 8 bytes each and aligned.
    unsafe {
        atomic::add(&raw mut (*book).times, 1);
        atomic::add(&raw mut (*book).time, time);
        atomic::add(&raw mut (*book).scanned, scanned);
        atomic::add(&raw mut (*book).reclaimed, reclaimed);
    }
    1
}
