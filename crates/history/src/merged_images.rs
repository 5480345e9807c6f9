//! Sums over ended process images that a recording has merged to save space.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{ImageEnd, Tick};

/// Ended process images of a group that were merged in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedImages {
    /// Number of process images by kind of end.
    pub ends: BTreeMap<ImageEnd, u64>,
    /// Sum of the times that the images ran during the trace.
    pub traced: Duration,
    /// Number of frees of inherited blocks. The number of frees of unknown blocks includes it.
    pub inherited_frees: u64,
    /// Start of the first image.
    pub first_start: Tick,
    /// End of the last image.
    pub last_end: Tick,
}

impl Default for MergedImages {
    /// Returns the sums over no images.
    fn default() -> Self {
        Self {
            ends: BTreeMap::new(),
            traced: Duration::ZERO,
            inherited_frees: 0,
            first_start: Tick(u32::MAX),
            last_end: Tick(0),
        }
    }
}

impl MergedImages {
    /// Adds the images in `other`.
    pub fn merge(&mut self, other: &Self) {
        for (&end, &images) in &other.ends {
            let sum = self.ends.entry(end).or_default();
            *sum = sum.saturating_add(images);
        }
        self.traced = self.traced.saturating_add(other.traced);
        self.inherited_frees = self.inherited_frees.saturating_add(other.inherited_frees);
        self.first_start = self.first_start.min(other.first_start);
        self.last_end = self.last_end.max(other.last_end);
    }
}
