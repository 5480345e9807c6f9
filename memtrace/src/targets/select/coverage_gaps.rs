//! Notes about the allocators and functions of a process that memtrace does not trace.

use memtrace_model::{Pid, printable};
use memtrace_object::allocators::{SkipReason, Survey, Verdict};

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
    let untraced = survey.examined.iter().filter(|examined| matches!(examined.verdict, Verdict::Go | Verdict::Own));
    gaps.extend(untraced.map(|examined| format!("process {pid}: {examined}")));
    gaps
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_heap_that_is_not_traced_is_named() {
        let mut survey = Survey::default();
        for (path, verdict) in [("/bin/go", Verdict::Go), ("/bin/memtrace", Verdict::Own), ("/bin/sh", Verdict::NotElf)]
        {
            survey.add(Path::new(path), verdict, None, || unreachable!("without an allocator"));
        }
        let gaps = coverage_gaps(Pid(7), &survey);
        let [go, own] = gaps.as_slice() else { panic!("{gaps:?}") };
        assert!(go.starts_with("process 7: /bin/go: made by Go"), "{go}");
        assert!(own.ends_with("its allocator is not traced; trace a process that runs a copy of the file"), "{own}");
    }
}
