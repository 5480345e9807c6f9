//! Usage of the exited threads of each process, as sums.

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, task_struct};
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{
    COMM, MAX_USED_PROCESSES, PROCESS_EXITED, PROCESS_OOM_KILLED, ProcessKey, ProcessUsage, usage,
};

use super::task;
use crate::limits::BPF_NOEXIST;
use crate::{atomic, loss};

#[btf_map]
static PROCESS_USAGE: HashMap<ProcessKey, ProcessUsage, MAX_USED_PROCESSES, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

const EMPTY: ProcessUsage = ProcessUsage { ended: [0; usage::COUNT], started: 0, exited: 0, flags: 0, comm: [0; COMM] };

#[inline(always)]
fn usage_of(key: &ProcessKey) -> Option<*mut ProcessUsage> {
    if PROCESS_USAGE.get_ptr_mut(key).is_none() {
        let _ = PROCESS_USAGE.insert(key, &EMPTY, BPF_NOEXIST);
    }
    let usage = PROCESS_USAGE.get_ptr_mut(key);
    if usage.is_none() {
        loss::count_without_log(LossReason::ProcessesFull);
    }
    usage
}

/// Counts a thread that starts in the process `key`.
#[inline(always)]
pub fn start_thread(key: &ProcessKey) {
    if let Some(usage) = usage_of(key) {
        // SAFETY: the pointer refers to a map value, and its fields are words.
        unsafe { atomic::add(&raw mut (*usage).started, 1) };
    }
}

/// Returns true if the last live thread of the process `key` has been counted. Other threads that began to exit earlier
/// may follow.
#[inline(always)]
pub fn is_ending(key: &ProcessKey) -> bool {
    // SAFETY: the flags are one word, which is read as a whole.
    unsafe { PROCESS_USAGE.get(key) }.is_some_and(|usage| usage.flags & PROCESS_EXITED != 0)
}

/// Adds the counters of the exiting thread `ended` to its process. `is_last` is true for the last thread of the
/// process in the kernel's count.
#[inline(always)]
pub fn end_thread(key: &ProcessKey, ended: *mut task_struct, counters: &[u64; usage::COUNT], is_last: bool) {
    let Some(usage) = usage_of(key) else { return };
    for (index, &count) in counters.iter().enumerate() {
        // SAFETY: the pointer refers to a map value, and its fields are words.
        unsafe { atomic::add(&raw mut (*usage).ended[index], count) };
    }
    // SAFETY: as above. If several threads exit at the same time, `is_last` can be true for each of them, because the
    // kernel counts them before it runs this program. User space therefore waits for the end of all threads.
    unsafe {
        atomic::add(&raw mut (*usage).exited, 1);
        if is_last {
            (*usage).comm = task::name_of_process(ended as u64);
            atomic::or(&raw mut (*usage).flags, PROCESS_EXITED);
        }
    }
}

/// Notes that the OOM killer has selected a process.
#[inline(always)]
pub fn select_victim(key: &ProcessKey) {
    if let Some(usage) = usage_of(key) {
        // SAFETY: the pointer refers to a map value, and its fields are words.
        unsafe { atomic::or(&raw mut (*usage).flags, PROCESS_OOM_KILLED) };
    }
}
