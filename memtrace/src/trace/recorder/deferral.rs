//! Decision from which on the stacks of new images are recorded with their end.

use std::time::Duration;

use memtrace_model::{EventClass, PartKeys};

use crate::trace::config::Config;

/// Age at which an image gets stacks of its own in the recording.
const AGE: Duration = Duration::from_secs(60);

/// Stacks that are recorded as they arrive.
const MAX_STACKS: usize = 1 << 16;

/// Number of ended images and of stacks in the recording, until there are too many.
pub(super) struct Deferral {
    /// Number of images and of stacks that are still possible; `None` if there is no limit.
    left: Option<[usize; 2]>,
    is_due: bool,
}

impl Deferral {
    /// Starts to count. Only blocks of any age, without histograms, peaks, touches and parts of processes, can have
    /// deferred stacks, and top sites during the run need all stacks.
    pub(super) fn new(config: &Config) -> Self {
        let is_possible = config.views_moments()
            && config.events == [EventClass::Heap]
            && config.parts() == PartKeys::NONE
            && !config.keeps_peaks()
            && config.cold_after.is_none()
            && config.older.is_none()
            && !config.lifetimes
            && config.every.is_none();
        Self { left: is_possible.then_some([config.keep_ended, MAX_STACKS]), is_due: false }
    }

    /// Counts an image that has ended.
    pub(super) fn add_ended(&mut self) {
        self.subtract([1, 0]);
    }

    /// Counts new stacks of an image.
    pub(super) fn add_stacks(&mut self, stacks: usize) {
        self.subtract([0, stacks]);
    }

    fn subtract(&mut self, used: [usize; 2]) {
        let Some(left) = &mut self.left else { return };
        left.iter_mut().zip(used).for_each(|(left, used)| *left = left.saturating_sub(used));
        if left.contains(&0) {
            (self.left, self.is_due) = (None, true);
        }
    }

    /// Returns the age at which images get stacks of their own, once, when there are too many.
    pub(super) const fn take(&mut self) -> Option<Duration> {
        if std::mem::replace(&mut self.is_due, false) { Some(AGE) } else { None }
    }
}
