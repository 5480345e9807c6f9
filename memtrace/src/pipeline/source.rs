//! Where a shard's events come from.

use std::time::Duration;

use crate::model::Event;

/// Where a shard's events come from: a ring of the kernel, or a test.
pub trait Source: Send {
    /// Called once, first, on the thread that will drain it.
    fn begin(&mut self) {}

    /// Hands over what has arrived, oldest first, and returns when there is no more, or after `limit` records or a few
    /// more. Never waits.
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained;

    /// Waits until so much has arrived that it should be drained soon, but never longer than `timeout`.
    fn wait(&mut self, timeout: Duration);
}

/// What one [`Source::drain`] took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records taken, good and bad; 0 says that the source is empty.
    pub records: usize,
    /// How many of them could not be understood.
    pub bad: u64,
}
