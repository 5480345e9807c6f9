//! Merges of old rows, which bound the size of a recording.

use super::compaction::Compaction;
use super::image_merge::ImageMerge;
use super::total_merge::TotalMerge;

/// A merge in progress.
#[derive(Debug)]
pub(super) enum Merge {
    /// Of old intervals.
    Intervals(Compaction),
    /// Of ended images.
    Images(ImageMerge),
    /// Of the totals of stacks.
    Totals(TotalMerge),
}
