//! Progress of the shards.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ledger::Ledger;
use crate::model::Bytes;

/// Progress of all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of applied events.
    pub events: u64,
    /// Live bytes of any age.
    pub live: Bytes,
    /// Losses that the ledgers counted, for all reasons.
    pub lost: u64,
}

/// Progress of one shard, written by its thread.
#[derive(Debug, Default)]
pub(super) struct ShardProgress {
    events: AtomicU64,
    live: AtomicU64,
    lost: AtomicU64,
}

impl ShardProgress {
    /// Reads the numbers one by one: each is exact by itself, which suffices for a progress line.
    pub(super) fn read(&self) -> Progress {
        Progress {
            events: self.events.load(Ordering::Relaxed),
            live: Bytes(self.live.load(Ordering::Relaxed)),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    pub(super) fn update(&self, ledger: &Ledger) {
        self.events.store(ledger.events(), Ordering::Relaxed);
        self.live.store(ledger.live().bytes.0, Ordering::Relaxed);
        self.lost.store(ledger.losses().total(), Ordering::Relaxed);
    }
}
