//! Demoted processes: blocks below a size are added up and not recorded, so that a process with too many live blocks
//! fills neither the rings nor the ledger.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{DroppedBlocks, DroppedRecord, MAX_DEMOTED, RecordKind};

use crate::thread::Thread;
use crate::{address_space, atomic, emit, gate};

/// Number of demotions so far. If it is 0, allocations need no look-up in [`MIN_SIZES`].
#[btf_map]
static DEMOTIONS: Array<u64, 1> = Array::new();

/// Sizes in bytes of the smallest recorded block, by process id. User space inserts them.
#[btf_map]
static MIN_SIZES: HashMap<u32, u64, MAX_DEMOTED> = HashMap::new();

/// Sums of the dropped blocks by process id. User space inserts the sum of a process before its minimum size: without a sum, a
/// block is recorded.
#[btf_map]
static DROPPED: HashMap<u32, DroppedBlocks, MAX_DEMOTED> = HashMap::new();

/// Returns true if a block of `size` bytes is dropped, and adds a dropped block to the sum of its process. `pid` is the
/// current process. The sum belongs to the main process of its address space.
#[inline(always)]
pub fn drops(pid: u32, size: u64) -> bool {
    is_any_demoted() && demotion_drops(address_space::main_process(pid), size) != 0
}

/// Returns 1 if the block is dropped, else 0. The function is global, because the programs at returns have little stack
/// left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn demotion_drops(pid: u32, size: u64) -> u64 {
    if min_size(pid).is_none_or(|min_size| size >= min_size) {
        return 0;
    }
    let Some(sum) = DROPPED.get_ptr_mut(&pid) else { return 0 };
    // SAFETY: the pointer refers to a map value of two words, which are aligned.
    unsafe {
        atomic::add(&raw mut (*sum).count, 1);
        atomic::add(&raw mut (*sum).bytes, size);
    }
    1
}

/// Returns true if all blocks of the current process are dropped, because a patch of its allocator samples them. `pid`: the current
/// process.
#[inline(always)]
pub fn drops_all(pid: u32) -> bool {
    is_any_demoted() && demotion_drops_all(address_space::main_process(pid)) != 0
}

/// Returns 1 if all blocks of the process are dropped, else 0. The function is global for the same reason as
/// [`demotion_drops`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn demotion_drops_all(pid: u32) -> u64 {
    u64::from(min_size(pid) == Some(u64::MAX))
}

/// Records the sum of the process of `thread` if the process was demoted. The caller handles its exec or exit, or the end of the
/// last process that shares its memory.
#[inline(always)]
pub fn emit(context: &impl EbpfContext, thread: Thread) {
    let Some(min_size) = min_size(thread.pid) else { return };
    // SAFETY: the process has no other running thread. A process that shares its memory can change the value, but each word is
    // read as a whole.
    let Some(&blocks) = (unsafe { DROPPED.get(&thread.pid) }) else { return };
    emit::dropped(context, DroppedRecord { header: thread.header(RecordKind::Dropped), min_size, blocks });
}

/// Handles the exit or exec of process `pid` before its last record. If it was the last process that shared the memory of a
/// process that has exited, ends the demotion of this memory.
#[inline(always)]
pub fn leave_memory(context: &impl EbpfContext, pid: u32) {
    if let Some(main) = address_space::leave(pid) {
        end(context, main);
    }
}

/// Handles the start of process `pid`: removes what an earlier process with this pid has left. The earlier process may have
/// exited before its sharers, its exit may have been missed, or user space may have demoted it during its exit.
#[inline(always)]
pub fn start(context: &impl EbpfContext, pid: u32) {
    leave_memory(context, pid);
    if address_space::forget_sharers(pid) {
        end(context, pid);
    }
    forget(pid);
}

/// Ends the demotion of process `main`, which has exited before the processes that share its memory.
#[inline(always)]
fn end(context: &impl EbpfContext, main: u32) {
    // After the gate has closed, the entry stays, because user space reads the sum from it.
    if gate::is_open() && is_any_demoted() {
        emit(context, Thread { pid: main, tid: main });
        forget(main);
    }
}

/// Removes the demotion of process `pid`. If other processes share its memory, the caller must not call this at its exit.
#[inline(always)]
pub fn forget(pid: u32) {
    if !is_any_demoted() {
        return;
    }
    let _ = MIN_SIZES.remove(&pid);
    let _ = DROPPED.remove(&pid);
}

#[inline(always)]
fn is_any_demoted() -> bool {
    DEMOTIONS.get(0).is_some_and(|&demotions| demotions != 0)
}

#[inline(always)]
fn min_size(pid: u32) -> Option<u64> {
    // SAFETY: the value is one word, which is read as a whole.
    unsafe { MIN_SIZES.get(&pid) }.copied()
}
