//! Limit of the number of stacks in deltas that wait for their receiver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of stacks in the unprocessed deltas of each shard, and the maximum of this number. Clones share the
/// numbers.
#[derive(Clone, Debug)]
pub struct WaitingStacks {
    shards: Arc<[AtomicUsize]>,
    max: usize,
}

impl WaitingStacks {
    /// Returns the counters of `shards` shards, at zero. `max`: maximum number of waiting stacks of one shard.
    #[must_use]
    pub fn new(shards: usize, max: usize) -> Self {
        Self { shards: (0..shards).map(|_| AtomicUsize::new(0)).collect(), max }
    }

    /// Adds the stacks of a delta of a shard, and returns true. Returns false if more than the maximum would wait.
    /// The first waiting delta of a shard can exceed the maximum, because the receiver needs the deltas of all
    /// shards to complete an interval.
    pub fn request(&self, shard: usize, stacks: usize) -> bool {
        let Some(waiting) = self.shards.get(shard) else { return true };
        // Only the thread of the shard increases the number.
        let now = waiting.load(Ordering::Relaxed);
        let fits = now == 0 || now.saturating_add(stacks) <= self.max;
        if fits {
            waiting.fetch_add(stacks, Ordering::Relaxed);
        }
        fits
    }

    /// Removes the stacks of a delta of a shard. The last deltas of a run arrive without a request, so the number
    /// stops at 0.
    pub fn release(&self, shard: usize, stacks: usize) {
        if let Some(waiting) = self.shards.get(shard) {
            let less = |waiting: usize| Some(waiting.saturating_sub(stacks));
            let _ = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_waits_while_the_receiver_has_many_of_its_stacks() {
        let waiting = WaitingStacks::new(2, 10);
        assert!(waiting.request(0, 8) && !waiting.request(0, 3) && waiting.request(0, 2));
        assert!(waiting.request(1, 100), "a single delta can be larger");
        assert!(!waiting.request(1, 1));
        waiting.release(0, 8);
        assert!(waiting.request(0, 3));
        waiting.release(1, 100);
        assert!(waiting.request(1, 1));
    }
}
