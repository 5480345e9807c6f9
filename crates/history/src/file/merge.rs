//! Merges of old rows, which bound the size of a recording.

use super::compaction::Compaction;
use super::image_merge::ImageMerge;
use super::span_removal::SpanRemoval;
use super::total_merge::TotalMerge;

/// The merge in progress.
#[derive(Debug)]
pub(super) enum Merge {
    Intervals(Compaction),
    Images(ImageMerge),
    Totals(TotalMerge),
    Spans(SpanRemoval),
}
