//! Iterator over the threads that wait in the kernel and may hold the lock of their memory map.

use memtrace_common::wire::{MemoryLockRecord, rwsem, task_state};

use crate::kernel::{read, read_word};
use crate::settings::field;
use crate::task_iterator::{self, TaskContext};

/// Writes a [`MemoryLockRecord`] for each thread that may hold the lock of its memory map and does not run. While several
/// readers hold a lock, the kernel knows only the last one. So every thread in an uninterruptible wait is reported if its
/// memory map is locked.
#[unsafe(link_section = "iter/task")]
#[unsafe(no_mangle)]
extern "C" fn memory_locks(context: *const TaskContext) -> i32 {
    let (seq, current) = task_iterator::arguments(context);
    if current.is_null() || field!(memory_lock.known) == 0 {
        return 0;
    }
    let task = current as u64;
    let state: u32 = read(task, field!(memory_lock.task_state)).unwrap_or(task_state::RUNNING);
    let memory = read_word(task, field!(memory_lock.task_mm));
    if state == task_state::RUNNING || memory == 0 {
        return 0;
    }
    if read_word(memory, field!(memory_lock.lock_count)) & rwsem::HELD == 0 {
        return 0;
    }
    let is_uninterruptible = state & (task_state::UNINTERRUPTIBLE | task_state::NO_LOAD) == task_state::UNINTERRUPTIBLE;
    let is_owner = read_word(memory, field!(memory_lock.lock_owner)) & !rwsem::OWNER_FLAGS == task;
    if !is_uninterruptible && !is_owner {
        return 0;
    }
    let switches =
        read_word(task, field!(memory_lock.task_nvcsw)).wrapping_add(read_word(task, field!(memory_lock.task_nivcsw)));
    let record = MemoryLockRecord {
        memory,
        switches,
        pid: read(task, field!(task.task_tgid)).unwrap_or(0),
        tid: read(task, field!(memory_lock.task_pid)).unwrap_or(0),
    };
    task_iterator::write(seq, &record);
    0
}
