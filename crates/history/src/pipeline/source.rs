//! Source of a shard's events.

use std::time::Duration;

use memtrace_model::{Event, Pid};

/// Source of a shard's events: a BPF ring buffer, or a test.
pub trait Source: Send {
    /// Prepares the source. This method is called once before the other methods, on the thread that drains the
    /// source.
    fn begin(&mut self) {}

    /// Passes the available events to `sink`, oldest first. Returns when the source is empty or after about `limit` records,
    /// without waiting.
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained;

    /// Returns true if the source has more records, or a record that is not complete yet. An incomplete record holds back the
    /// complete records behind it: the thread that writes it can be preempted.
    fn has_unread(&mut self) -> bool {
        false
    }

    /// Returns the total time that the thread that drains the source has waited for a processor; 0 if the time is not
    /// known.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the user of a process; `None` if the user is not known. Users share the ledger.
    fn user_of(_pid: Pid) -> Option<u32> {
        None
    }

    /// Returns free memory of the thread that drains the source to the kernel. It may take some milliseconds.
    fn return_memory(&mut self) {}

    /// Waits until the source needs to be drained soon, or until `timeout` has passed.
    fn wait(&mut self, timeout: Duration);
}

/// Result of one [`Source::drain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Number of records, including invalid records; 0 if the source is empty.
    pub records: usize,
    /// Number of invalid records.
    pub bad: u64,
}
