//! Merges of old rows, which bound the size of a recording.

use super::compaction::Compaction;
use super::image_merge::ImageMerge;
use super::slice_removal::SliceRemoval;
use super::total_merge::TotalMerge;

/// The merge in progress.
#[derive(Debug)]
pub(super) enum Merge {
    /// A merge of old intervals.
    Intervals(Compaction),
    /// A merge of ended images.
    Images(ImageMerge),
    /// A merge of the totals of stacks.
    Totals(TotalMerge),
    /// A removal of short slices.
    Slices(SliceRemoval),
}
