//! Background thread that reads stack copies, so that their ring buffer does not overflow while the run waits or builds
//! tables.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memtrace_host::kernel::RingReader;
use memtrace_host::kernel::stack_copies::{StackCopy, StackCopyReader};
use memtrace_model::Bytes;
use tokio::sync::Notify;

/// Number of records that are read between two checks of the limits.
const BATCH: usize = 256;
/// Pause between polls of the ring buffer.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause after copies were read. It is shorter, because more copies follow soon: other stacks need the same pages of a
/// table until these pages are published.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

/// Copies that were read, and the limits.
#[derive(Default)]
pub(super) struct Shared {
    copies: Mutex<Vec<StackCopy>>,
    /// Size of the copies with unfinished walks, in bytes.
    bytes: AtomicUsize,
    /// Limit of `bytes`. The copies in a full ring buffer are not included.
    max_bytes: usize,
    /// Number of copies of running processes.
    count: AtomicUsize,
    /// Limit of `count`.
    max_count: usize,
    /// Start of the last read that emptied the ring buffer; `None` before the first one.
    emptied: Mutex<Option<Instant>>,
    stopped: AtomicBool,
}

/// Thread that reads stack copies. At a limit, it stops reading: the ring buffer fills up, and further stacks are cut.
pub(super) struct CopyThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CopyThread {
    /// Starts the thread. Copies with unfinished walks take at most `memory`, and at most `max_count` copies are of running
    /// processes. `notify` is notified after copies were read.
    pub(super) fn start(reader: StackCopyReader, memory: Bytes, max_count: usize, notify: Arc<Notify>) -> Self {
        let max_bytes = usize::try_from(memory.0).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared { max_bytes, max_count, ..Shared::default() });
        let theirs = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name(String::from("stack copies")).spawn(move || theirs.read(reader, &notify));
        let thread = thread.inspect_err(|error| log::warn!("cannot start a thread for stack copies: {error}")).ok();
        Self { shared, thread }
    }

    /// Returns the copies that were read since the last call.
    pub(super) fn take(&self) -> Vec<StackCopy> {
        mem::take(&mut *self.shared.copies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes and returns the read copies that `is_wanted` accepts. The next call of [`Self::take`] does not return them.
    pub(super) fn take_if(&self, is_wanted: impl FnMut(&mut StackCopy) -> bool) -> Vec<StackCopy> {
        let mut copies = self.shared.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.extract_if(.., is_wanted).collect()
    }

    /// Returns true if `is_wanted` accepts a copy that was read, and that [`Self::take`] has not returned.
    pub(super) fn has_any(&self, is_wanted: impl FnMut(&StackCopy) -> bool) -> bool {
        self.shared.copies.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is_wanted)
    }

    /// Returns true if all copies that are older than `age` were read.
    pub(super) fn has_read(&self, age: Duration) -> bool {
        self.shared.has_read(age)
    }

    /// Releases the memory of a finished copy.
    pub(super) fn release(&self, copy: &StackCopy) {
        self.shared.bytes.fetch_sub(copy.size(), Ordering::Relaxed);
    }

    /// Subtracts the copies of an ended process from the number of copies. `copies`: number of these copies.
    pub(super) fn forget(&self, copies: usize) {
        self.shared.count.fetch_sub(copies, Ordering::Relaxed);
    }

    /// Reads the rest of the ring buffer, and ends the thread. No BPF program may be running.
    pub(super) fn stop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for CopyThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn read(&self, mut reader: StackCopyReader, notify: &Notify) {
        RingReader::raise_priority();
        loop {
            // `stopped` is read first, so that the ring buffer is read once more after the stop.
            let stopped = self.stopped.load(Ordering::Relaxed);
            let is_full = self.bytes.load(Ordering::Relaxed) >= self.max_bytes
                || self.count.load(Ordering::Relaxed) >= self.max_count;
            let read = if is_full && !stopped { 0 } else { self.read_batch(&mut reader) };
            if read > 0 {
                notify.notify_one();
            }
            if read == BATCH {
                continue;
            }
            if stopped {
                return;
            }
            let pause = if read > 0 { SHORT_PAUSE } else { PAUSE };
            if is_full { thread::sleep(pause) } else { reader.wait(pause) }
        }
    }

    fn read_batch(&self, reader: &mut StackCopyReader) -> usize {
        let begin = Instant::now();
        let mut copies = Vec::new();
        let read = reader.drain(BATCH, |copy| copies.push(copy));
        self.bytes.fetch_add(copies.iter().map(StackCopy::size).sum(), Ordering::Relaxed);
        self.count.fetch_add(copies.len(), Ordering::Relaxed);
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).append(&mut copies);
        if read < BATCH && !reader.has_unread() {
            *self.emptied.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin);
        }
        read
    }

    /// Returns true if all copies that are older than `age` were read.
    fn has_read(&self, age: Duration) -> bool {
        let emptied = *self.emptied.lock().unwrap_or_else(PoisonError::into_inner);
        emptied.is_some_and(|emptied| emptied.elapsed() < age)
    }
}

impl fmt::Debug for CopyThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CopyThread").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_before_the_last_complete_read_are_read() {
        let shared = Shared::default();
        assert!(!shared.has_read(Duration::MAX), "no read has emptied the ring");
        *shared.emptied.lock().unwrap() = Some(Instant::now());
        assert!(shared.has_read(Duration::from_secs(3600)));
        assert!(!shared.has_read(Duration::ZERO), "a copy can have arrived since then");
    }
}
