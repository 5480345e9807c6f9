//! Epochs: marks divide the time of a recording into epochs, and a block belongs to the epoch of its allocation.

use memtrace_model::{Epoch, Tick};

/// Marks so far, and the limit of changes by epoch in a delta.
#[derive(Debug)]
pub(super) struct Epochs {
    /// Times of the marks, in order. Each starts an epoch.
    marks: Vec<Tick>,
    /// Number of changes by epoch in the next delta.
    changes: u32,
    /// Maximum of `changes`.
    max: u32,
}

impl Epochs {
    /// Returns the epochs before the first mark. `max`: maximum number of changes by epoch in a delta.
    pub(super) const fn new(max: u32) -> Self {
        Self { marks: Vec::new(), changes: 0, max }
    }

    /// Starts an epoch: blocks that are allocated after `mark` belong to it.
    pub(super) fn begin(&mut self, mark: Tick) {
        self.marks.push(self.marks.last().map_or(mark, |last| mark.max(*last)));
    }

    /// Returns the epoch of a block that was allocated at `tick`; `None` if it is the current epoch.
    #[inline]
    pub(super) fn earlier(&self, tick: Tick) -> Option<Epoch> {
        if self.marks.last().is_none_or(|mark| *mark < tick) {
            return None;
        }
        // The number of marks is limited.
        Some(Epoch(self.marks.partition_point(|mark| *mark < tick) as u32))
    }

    /// Counts one more change in the next delta, and returns true. Returns false if the maximum is reached.
    pub(super) const fn request_change(&mut self) -> bool {
        let fits = self.changes < self.max;
        self.changes += fits as u32;
        fits
    }

    /// Starts the next delta.
    pub(super) const fn end_delta(&mut self) {
        self.changes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_at_the_time_of_a_mark_is_from_before_it() {
        let mut epochs = Epochs::new(1);
        assert_eq!(epochs.earlier(Tick(0)), None);
        epochs.begin(Tick(10));
        epochs.begin(Tick(20));
        let ticks = [0, 10, 11, 20, 21];
        assert_eq!(
            ticks.map(|tick| epochs.earlier(Tick(tick)).map(|epoch| epoch.0)),
            [Some(0), Some(0), Some(1), Some(1), None]
        );
    }
}
