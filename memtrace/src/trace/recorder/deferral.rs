//! Decision to record the stacks of new images only when the images end.

use std::time::Duration;

use memtrace_model::{EventClass, PartKeys};

use crate::trace::config::Config;

/// Minimum age of an image with stacks of its own in the recording, if stacks are deferred.
pub(super) const AGE: Duration = Duration::from_secs(60);

/// The stacks of new images are deferred once this number of stacks is recorded.
const MAX_STACKS: usize = 1 << 16;

/// Stacks are deferred before the limit of call paths allows fewer than this number of paths for each stack. Beyond this
/// limit, stacks are merged, so their changes would take memory in vain.
const PATHS_PER_STACK: usize = 4;

/// Counters of ended images and recorded stacks, each with a limit. When one reaches its limit, stacks are deferred.
pub(super) struct Deferral {
    /// Remaining numbers of images and of stacks until the limits; `None` if nothing is counted.
    left: Option<[usize; 2]>,
    is_due: bool,
    has_begun: bool,
}

impl Deferral {
    /// Starts to count. Stacks can only be deferred if blocks of any age are traced, without histograms, peaks, touches
    /// and parts of processes. Top sites during the run need all stacks. `max_paths`: maximum number of call paths.
    pub(super) fn new(config: &Config, max_paths: usize) -> Self {
        let is_possible = (config.views_moments() || config.trend_interval().is_some())
            && config.events == [EventClass::Heap]
            && config.parts() == PartKeys::NONE
            && !config.keeps_peaks()
            && config.touches.cold_after.is_none()
            && config.blocks.older.is_none()
            && !config.blocks.lifetimes
            && config.every.is_none();
        let max_stacks = MAX_STACKS.min(max_paths / PATHS_PER_STACK);
        Self { left: is_possible.then_some([config.keep_ended, max_stacks]), is_due: false, has_begun: false }
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

    /// Returns [`AGE`] once, after a limit is reached.
    pub(super) const fn take(&mut self) -> Option<Duration> {
        self.has_begun |= self.is_due;
        if std::mem::replace(&mut self.is_due, false) { Some(AGE) } else { None }
    }

    /// Returns true once the stacks of new images are deferred.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if stacks are deferred after `stacks` stacks, with a limit of `max_paths` call paths.
    fn is_deferred(max_paths: usize, stacks: usize) -> bool {
        let config = crate::cli::resolved_trace("--all").expect("a valid configuration");
        let mut deferral = Deferral::new(&config, max_paths);
        deferral.add_stacks(stacks);
        deferral.take() == Some(AGE)
    }

    #[test]
    fn stacks_are_deferred_before_their_paths_are_merged() {
        assert_eq!([is_deferred(1 << 18, MAX_STACKS - 1), is_deferred(1 << 18, MAX_STACKS)], [false, true]);
        assert_eq!([is_deferred(40_000, 9_999), is_deferred(40_000, 10_000)], [false, true]);
    }
}
