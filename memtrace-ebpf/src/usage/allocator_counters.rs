//! Counters that an allocator keeps for each thread in the memory of its process, such as jemalloc's. User space reads
//! them while the threads run. The programs read them for the last time before a thread exits.

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, task_struct};
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{COUNTERS_READ, COUNTERS_UNREADABLE, MAX_USED_PROCESSES, usage};

use super::{task, thread_counts};
use crate::kernel;

/// Distances in bytes of the counters of allocated and of freed bytes from the thread pointer, by process id.
#[btf_map]
static ALLOCATOR_COUNTERS: HashMap<u32, [i64; 2], MAX_USED_PROCESSES, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Reads the counters of the current thread into its storage, if the process `pid` of the thread has an entry. The
/// values are final if the thread executes no more code of the process.
#[inline(always)]
pub fn read_current(pid: u32) {
    // SAFETY: user space writes the value before the programs count, and does not change it.
    let Some(&[allocated, freed]) = (unsafe { ALLOCATOR_COUNTERS.get(&pid) }) else { return };
    let Some(counts) = thread_counts::of_current() else { return };
    let thread_pointer = task::thread_pointer(kernel::current_task());
    counts.has_own = 0;
    if let Some(allocated) = word(thread_pointer, allocated)
        && let Some(freed) = word(thread_pointer, freed)
    {
        counts.own = [allocated, freed];
        counts.has_own = 1;
    }
}

#[inline(always)]
fn word(thread_pointer: u64, distance: i64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(thread_pointer.wrapping_add_signed(distance) as *const u64) }.ok()
}

/// Adds the counters that [`read_current`] has read to the usage of the exiting thread `ended`. Returns the flags of
/// the thread's record.
#[inline(always)]
pub fn add_last(pid: u32, ended: *mut task_struct, counters: &mut [u64; usage::COUNT]) -> u32 {
    // SAFETY: only the presence of the value matters.
    let has_entry = unsafe { ALLOCATOR_COUNTERS.get(&pid) }.is_some();
    if !has_entry || task::thread_pointer(ended as u64) == 0 {
        return 0;
    }
    match thread_counts::of_task(ended) {
        Some(counts) if counts.has_own != 0 => {
            let [allocated, freed] = counts.own;
            counters[usage::ALLOC_BYTES] = counters[usage::ALLOC_BYTES].wrapping_add(allocated);
            counters[usage::FREE_BYTES] = counters[usage::FREE_BYTES].wrapping_add(freed);
            COUNTERS_READ
        }
        _ => COUNTERS_UNREADABLE,
    }
}

/// Removes the entry of process `pid` when it calls exec, or when it starts with the id of an earlier process. User space
/// inserts all entries before the programs begin to count.
#[inline(always)]
pub fn forget(pid: u32) {
    let _ = ALLOCATOR_COUNTERS.remove(&pid);
}
