//! Allocators of a process that memtrace does not trace.

use crate::allocators::{SkipReason, Survey, Verdict};
use crate::model::{Pid, printable};

/// Describes the allocations of a process that tracing will miss.
pub(super) fn coverage_gaps(pid: Pid, survey: &Survey) -> Vec<String> {
    let mut gaps = Vec::new();
    for allocator in &survey.allocators {
        let path = printable(&allocator.object.path);
        if !allocator.is_supported() {
            gaps.push(format!("process {pid} also has the allocator {path}, which memtrace does not trace"));
        }
        let skipped = allocator.skipped.iter().filter(|skipped| skipped.reason == SkipReason::Throws);
        gaps.extend(skipped.map(|skipped| format!("process {pid}: {} of {path}: {}", skipped.symbol, skipped.reason)));
    }
    let go = survey.examined.iter().filter(|examined| examined.verdict == Verdict::Go);
    gaps.extend(go.map(|examined| format!("process {pid}: {examined}")));
    gaps
}
