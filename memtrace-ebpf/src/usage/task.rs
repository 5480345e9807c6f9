//! Counters, name and identity of a task, read from its `task_struct`.

use aya_ebpf::bindings::task_struct;
use memtrace_common::wire::{COMM, ProcessKey, ThreadRecord, usage};

use super::thread_counts;
use crate::kernel::{read, read_word};
use crate::settings::field;

/// Returns the identity of the process of a task.
#[inline(always)]
pub fn process_of(task: u64) -> ProcessKey {
    let leader = read_word(task, field!(task.task_group_leader));
    let pid: u32 = read(task, field!(task.task_tgid)).unwrap_or(0);
    ProcessKey { pid: pid as u64, start_ns: read_word(leader, field!(thread.task_start)) }
}

/// Returns the name of a task's process, which is the name of its first thread.
#[inline(always)]
pub fn name_of_process(task: u64) -> [u8; COMM] {
    read(read_word(task, field!(task.task_group_leader)), field!(task.task_comm)).unwrap_or_default()
}

/// `PF_IO_WORKER`, and `PF_USER_WORKER` since Linux 6.4 (include/linux/sched.h): threads of the kernel that belong to a
/// process, such as workers of io_uring.
const WORKER: u32 = 0x10 | 0x4000;

/// Returns the thread pointer of a task; 0 if it has none. Workers of the kernel have a copy of the thread pointer of
/// their creator (`copy_thread`, arch/x86/kernel/process.c), but no thread-local variables.
#[inline(always)]
pub fn thread_pointer(task: u64) -> u64 {
    let flags: u32 = read(task, field!(task.task_flags)).unwrap_or(WORKER);
    if flags & WORKER != 0 { 0 } else { read_word(task, field!(vma.task_thread_pointer)) }
}

/// Returns the counters of a task. The heap counters start at the first counted call of the thread, the other counters
/// at the start of the thread.
#[inline(always)]
fn usage_of(task: *mut task_struct) -> [u64; usage::COUNT] {
    let mut counters = [0; usage::COUNT];
    if let Some(counts) = thread_counts::of_task(task) {
        counters[usage::ALLOC_BYTES] = counts.heap[usage::ALLOC_BYTES];
        counters[usage::ALLOC_COUNT] = counts.heap[usage::ALLOC_COUNT];
        counters[usage::FREE_BYTES] = counts.heap[usage::FREE_BYTES];
        counters[usage::FREE_COUNT] = counts.heap[usage::FREE_COUNT];
    }
    let task = task as u64;
    // The run time is exact, but the kernel counts user and system time by ticks (`account_process_tick`,
    // kernel/sched/cputime.c). /proc divides the run time in proportion to the ticks (`cputime_adjust`), but such
    // values of the threads do not add up to the value of the process.
    let runtime = read_word(task, field!(thread.task_runtime));
    let system = read_word(task, field!(thread.task_stime)).min(runtime);
    counters[usage::USER_TIME] = runtime - system;
    counters[usage::SYSTEM_TIME] = system;
    counters[usage::RUN_DELAY] = read_word(task, field!(thread.task_run_delay));
    counters[usage::VOLUNTARY_SWITCHES] = read_word(task, field!(thread.task_nvcsw));
    counters[usage::INVOLUNTARY_SWITCHES] = read_word(task, field!(thread.task_nivcsw));
    if field!(thread_io.known) != 0 {
        counters[usage::READ_BYTES] = read_word(task, field!(thread_io.task_read_bytes));
        counters[usage::WRITE_BYTES] = read_word(task, field!(thread_io.task_write_bytes));
    }
    counters[usage::MINOR_FAULTS] = read_word(task, field!(thread.task_min_flt));
    counters[usage::MAJOR_FAULTS] = read_word(task, field!(thread.task_maj_flt));
    counters
}

/// Returns the record of a task. `key` is the identity of its process.
#[inline(always)]
pub fn record_of(task: *mut task_struct, key: ProcessKey) -> ThreadRecord {
    let usage = usage_of(task);
    let task = task as u64;
    let state: u32 = read(task, field!(thread.task_state)).unwrap_or(0);
    let exit_state: u32 = read(task, field!(thread.task_exit_state)).unwrap_or(0);
    ThreadRecord {
        pid: key.pid as u32,
        tid: read(task, field!(thread.task_pid)).unwrap_or(0),
        start_ns: read_word(task, field!(thread.task_start)),
        process_start_ns: key.start_ns,
        thread_pointer: thread_pointer(task),
        state: state | exit_state,
        flags: 0,
        comm: read(task, field!(task.task_comm)).unwrap_or_default(),
        usage,
    }
}
