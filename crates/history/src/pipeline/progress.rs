//! Progress of the shards.

use std::ops::Add;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use memtrace_model::{Bytes, CallsBySize, ImageId};

use crate::ledger::Demoted;

/// Progress of a shard, or the sum over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of applied events.
    pub events: u64,
    /// Live bytes, regardless of the age of blocks.
    pub live: Bytes,
    /// Number of losses that the ledgers have counted, over all reasons.
    pub lost: u64,
    /// Number of recorded allocations by size.
    pub calls: CallsBySize,
}

impl Add for Progress {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            live: Bytes(self.live.0.wrapping_add(other.live.0)),
            lost: self.lost.saturating_add(other.lost),
            calls: self.calls + other.calls,
        }
    }
}

/// Progress of one shard. The thread of the shard sets it.
#[derive(Debug, Default)]
pub(super) struct ShardProgress {
    progress: Mutex<Progress>,
    /// True if the shard has set the progress since [`Self::forget_answer`].
    has_answered: AtomicBool,
    /// Processes that the shard has demoted, and that were not taken.
    demoted: Mutex<Vec<Demoted>>,
    /// Ended images that the shard keeps because other processes share their memory, and that were not taken.
    kept: Mutex<Vec<ImageId>>,
    /// Images that have refused a reading of their profile, and that were not taken.
    refused: Mutex<Vec<ImageId>>,
}

impl ShardProgress {
    pub(super) fn read(&self) -> Progress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Adds processes that the shard has demoted.
    pub(super) fn add_demoted(&self, demoted: Vec<Demoted>) {
        self.demoted.lock().unwrap_or_else(PoisonError::into_inner).extend(demoted);
    }

    /// Removes and returns the demoted processes.
    pub(super) fn take_demoted(&self) -> Vec<Demoted> {
        std::mem::take(&mut self.demoted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds images that the shard keeps.
    pub(super) fn add_kept(&self, images: impl IntoIterator<Item = ImageId>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(images);
    }

    /// Removes and returns the images that the shard keeps.
    pub(super) fn take_kept(&self) -> Vec<ImageId> {
        std::mem::take(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds images that have refused a reading of their profile.
    pub(super) fn add_refused(&self, images: Vec<ImageId>) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).extend(images);
    }

    /// Removes and returns the images that have refused a reading of their profile.
    pub(super) fn take_refused(&self) -> Vec<ImageId> {
        std::mem::take(&mut self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(super) fn forget_answer(&self) {
        self.has_answered.store(false, Ordering::Relaxed);
    }
}
