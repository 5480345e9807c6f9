//! Locks of memory maps that processes hold while they wait.
//!
//! To insert or remove a breakpoint, the kernel takes the lock of the memory map of every process that maps the instruction,
//! even if the probe is for another process. Until the kernel has the lock, no process of the machine can fork, and no signal
//! ends the wait (`register_for_each_vma`, kernel/events/uprobes.c). A process can hold its lock for as long as it likes. If it
//! unmaps pages of a FUSE file that it has written, the kernel waits for the server with the lock (`fuse_vma_close`,
//! fs/fuse/file.c).
//!
//! Reads of `/proc/PID/maps` do not show such a lock. munmap(2) holds the lock for reading when it waits
//! (`vms_complete_munmap_vmas`, mm/vma.c), and since Linux 6.17 the file is read without the lock. So a BPF program reads the
//! locks themselves.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_common::wire::MemoryLockRecord;
use memtrace_model::Pid;

use super::bpf::Bpf;
use super::error::KernelError;
use super::lock_holder::LockHolder;
use super::task_iterator::TaskIterator;

/// BPF program of the iterator over tasks.
const PROGRAM: &str = "memory_locks";

/// Time for which a thread must hold a lock without running. Page faults and reclaim hold locks for shorter times.
const LIMIT: Duration = Duration::from_secs(1);

/// Time that all checks of an object may wait together. A process can hold its lock for less than [`LIMIT`] at a time, again
/// and again.
pub(super) const ALL_CHECKS: Duration = Duration::from_secs(5);

/// First pause between two samples. Most locks are free after it.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between two samples.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of threads in a sample.
const MAX_THREADS: usize = 256;

/// Number of bytes of a read from the iterator: a whole number of records.
const BUFFER: usize = 128 * size_of::<MemoryLockRecord>();

/// Checks if a process holds the lock of its memory map while it waits.
pub(super) struct MemoryLocks {
    iterator: TaskIterator,
    /// Thread that held a lock in the last check. If it still holds the lock, the next check does not wait again.
    last: Mutex<Option<MemoryLockRecord>>,
}

impl MemoryLocks {
    pub(super) fn load(bpf: &mut Bpf) -> Result<Self, KernelError> {
        Ok(Self { iterator: TaskIterator::load(bpf, PROGRAM)?, last: Mutex::new(None) })
    }

    /// Checks that probes can be inserted and removed now. A lock counts only if it is held for [`LIMIT`]. `left`: time that this
    /// check and later ones may still wait, [`ALL_CHECKS`] at first. If less time is left, a lock counts after a shorter time.
    ///
    /// # Errors
    ///
    /// [`KernelError::LockedMemory`]; errors of the iterator.
    pub(super) fn require_free(&self, left: &mut Duration) -> Result<(), KernelError> {
        let most = (*left).clamp(LONGEST_PAUSE, LIMIT);
        let mut left_of_check = most;
        let found = self.find_holder_within(&mut left_of_check);
        *left = left.saturating_sub(most - left_of_check);
        match found {
            Ok(None) => Ok(()),
            Ok(Some(holder)) => Err(KernelError::LockedMemory { holder }),
            Err(error) => {
                let reason = error.to_string();
                Err(KernelError::from_io("check the locks of memory maps", error, reason))
            }
        }
    }

    /// Returns a process that has held the lock of its memory map for some time; `None` if there is none. Waits for a second
    /// at most, and not at all if the last check has found the same lock.
    pub(super) fn find_holder(&self) -> io::Result<Option<LockHolder>> {
        let mut left = LIMIT;
        self.find_holder_within(&mut left)
    }

    fn find_holder_within(&self, left: &mut Duration) -> io::Result<Option<LockHolder>> {
        let last = *self.last();
        let found = find_thread(|| self.sample(), last, left)?;
        *self.last() = found;
        Ok(found.map(|thread| LockHolder::of(Pid(thread.pid))))
    }

    /// Same as [`Self::find_holder`], but takes no lock of memtrace and allocates no memory, so that the child of a fork
    /// can call it.
    pub(super) fn has_holder(&self) -> bool {
        let mut left = LIMIT;
        find_thread(|| self.sample(), None, &mut left).is_ok_and(|found| found.is_some())
    }

    fn last(&self) -> MutexGuard<'_, Option<MemoryLockRecord>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self) -> io::Result<Sample> {
        let mut sample = Sample::EMPTY;
        self.iterator.for_each(&mut [0; BUFFER], |thread| sample.add(thread))?;
        Ok(sample)
    }
}

/// Takes samples for the time `left`, and returns a thread that is in all of them. Subtracts the waits from `left`. `last`:
/// thread that was in all samples of an earlier check.
fn find_thread(
    mut sample: impl FnMut() -> io::Result<Sample>,
    last: Option<MemoryLockRecord>,
    left: &mut Duration,
) -> io::Result<Option<MemoryLockRecord>> {
    let mut pause = FIRST_PAUSE;
    let mut kept = sample()?;
    loop {
        let Some(&first) = kept.threads().first() else { return Ok(None) };
        if last.is_some_and(|last| kept.threads().contains(&last)) {
            return Ok(last);
        }
        if left.is_zero() {
            return Ok(Some(first));
        }
        let begin = Instant::now();
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        kept.keep_common(&sample()?);
        *left = left.saturating_sub(begin.elapsed());
    }
}

/// Threads that may hold the lock of their memory map at a moment.
#[derive(Clone, Debug)]
struct Sample {
    threads: [MemoryLockRecord; MAX_THREADS],
    count: usize,
    /// True if there were more threads.
    is_cut: bool,
}

impl Sample {
    const EMPTY: Self = Self {
        threads: [MemoryLockRecord { memory: 0, switches: 0, pid: 0, tid: 0 }; MAX_THREADS],
        count: 0,
        is_cut: false,
    };

    fn threads(&self) -> &[MemoryLockRecord] {
        &self.threads[..self.count]
    }

    fn add(&mut self, thread: MemoryLockRecord) {
        match self.threads.get_mut(self.count) {
            Some(place) => {
                *place = thread;
                self.count += 1;
            }
            None => self.is_cut = true,
        }
    }

    /// Keeps the threads that are in `later` too, and have not run since. If `later` is cut, a thread that is missing
    /// there may still hold its lock, so no thread is removed.
    fn keep_common(&mut self, later: &Self) {
        if later.is_cut {
            return;
        }
        if self.is_cut {
            self.clone_from(later);
            return;
        }
        let mut kept = 0;
        for index in 0..self.count {
            let thread = self.threads[index];
            if later.threads().contains(&thread) {
                self.threads[kept] = thread;
                kept += 1;
            }
        }
        self.count = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, switches: u64) -> MemoryLockRecord {
        MemoryLockRecord { memory: 1 << 63, switches, pid: 1, tid }
    }

    fn sample(threads: impl IntoIterator<Item = MemoryLockRecord>) -> Sample {
        let mut sample = Sample::EMPTY;
        threads.into_iter().for_each(|thread| sample.add(thread));
        sample
    }

    #[test]
    fn threads_that_have_run_do_not_hold_the_lock() {
        let mut kept = sample([thread(1, 5), thread(2, 5), thread(3, 5)]);
        kept.keep_common(&sample([thread(3, 5), thread(2, 6), thread(4, 1)]));
        assert_eq!(kept.threads(), [thread(3, 5)]);
        kept.keep_common(&sample([]));
        assert!(kept.threads().is_empty());
    }

    #[test]
    fn waits_of_several_checks_add_up() {
        let mut left = FIRST_PAUSE + Duration::from_nanos(1);
        // Each sample has another thread, because each lock is held for a short time only.
        let mut switches = 0;
        let mut short = || {
            switches += 1;
            Ok(sample([thread(1, switches)]))
        };
        assert_eq!(find_thread(&mut short, None, &mut left).unwrap(), None);
        assert!(left <= Duration::from_nanos(1), "{left:?}");
        let held = || Ok(sample([thread(2, 1)]));
        assert_eq!(find_thread(held, None, &mut left).unwrap(), Some(thread(2, 1)));
        assert_eq!(left, Duration::ZERO);
        let mut later = LIMIT;
        assert_eq!(find_thread(held, Some(thread(2, 1)), &mut later).unwrap(), Some(thread(2, 1)));
        assert_eq!(later, LIMIT, "a known lock costs no wait");
    }

    #[test]
    fn locks_of_another_memory_map_are_others() {
        let mut kept = sample([thread(1, 5)]);
        kept.keep_common(&sample([MemoryLockRecord { memory: 1 << 62, ..thread(1, 5) }]));
        assert!(kept.threads().is_empty());
    }

    #[test]
    fn threads_beyond_a_sample_may_hold_a_lock() {
        let many = |from: u32| (from..=from + MAX_THREADS as u32).map(|tid| thread(tid, 1));
        let mut kept = sample(many(0));
        assert!(kept.is_cut);
        kept.keep_common(&sample([thread(7, 2)]));
        assert_eq!((kept.threads(), kept.is_cut), ([thread(7, 2)].as_slice(), false));
        kept.keep_common(&sample(many(1000)));
        assert_eq!(kept.threads(), [thread(7, 2)]);
        kept.keep_common(&sample([]));
        assert!(kept.threads().is_empty());
    }
}
