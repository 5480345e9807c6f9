//! Locks of memory maps (`mm_struct.mmap_lock`) that threads hold while they wait.

/// A thread that waits in the kernel and may hold the lock of its memory map. The task iterator reports these threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MemoryLockRecord {
    /// Address of the memory map's `mm_struct`.
    pub memory: u64,
    /// Context switches of the thread since its start. The number stays the same while the thread waits.
    pub switches: u64,
    /// Process id, in the root pid namespace.
    pub pid: u32,
    /// Thread id, in the root pid namespace.
    pub tid: u32,
}

/// Words of a `rw_semaphore` (kernel/locking/rwsem.c).
pub mod rwsem {
    /// Bits of `count` that are set while the lock is held: `RWSEM_WRITER_LOCKED`, and the number of readers. The other bits
    /// are flags of tasks that wait for the lock.
    pub const HELD: u64 = 1 | (u64::MAX >> 1) & !0xff;
    /// Flags in `owner`: `RWSEM_OWNER_FLAGS_MASK`. The other bits are the address of the `task_struct` of the writer, or of
    /// the last reader.
    pub const OWNER_FLAGS: u64 = 3;
}

/// Bits of `task_struct.__state` (include/linux/sched.h).
pub mod task_state {
    /// The thread runs, or waits for a processor.
    pub const RUNNING: u32 = 0;
    /// The thread waits, and only a fatal signal may wake it.
    pub const UNINTERRUPTIBLE: u32 = 2;
    /// The thread has no work (`TASK_IDLE`).
    pub const NO_LOAD: u32 = 0x400;
}

const _: () = assert!(size_of::<MemoryLockRecord>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_waiting_tasks_do_not_hold_a_lock() {
        let (writer, reader): (u64, u64) = (1, 1 << 8);
        // `RWSEM_FLAG_WAITERS`, `RWSEM_FLAG_HANDOFF`, `RWSEM_FLAG_READFAIL`.
        let flags: u64 = 1 << 1 | 1 << 2 | 1 << 63;
        let is_held = |count: u64| count & rwsem::HELD != 0;
        assert!([writer, reader, 3 * reader, writer | flags].into_iter().all(is_held));
        assert!(![flags, 0].into_iter().any(is_held));
    }
}
