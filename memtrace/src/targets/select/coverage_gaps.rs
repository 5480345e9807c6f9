//! Notes about the allocators and functions of a process that memtrace does not trace.

use memtrace_model::{Pid, printable};
use memtrace_object::allocators::{Kind, SkipReason, Skipped, Survey, Verdict};

/// Describes the allocations of a process that tracing will miss.
pub(super) fn coverage_gaps(pid: Pid, survey: &Survey) -> Vec<String> {
    let mut gaps = Vec::new();
    for allocator in &survey.allocators {
        let path = printable(&allocator.object.path);
        if !allocator.is_supported() {
            gaps.push(format!("process {pid} also has the allocator {path}, which memtrace does not trace"));
        }
        let is_gap = |skipped: &&Skipped| match skipped.reason {
            SkipReason::Throws => true,
            // The methods of other types only call functions with probes.
            SkipReason::UnknownArguments => allocator.kinds.all().contains(&Kind::Rust),
            _ => false,
        };
        let skipped = allocator.skipped.iter().filter(is_gap);
        gaps.extend(skipped.map(|skipped| format!("process {pid}: {} of {path}: {}", skipped.name(), skipped.reason)));
        if allocator.has_only_rustc_functions() && !allocator.skipped.iter().any(|skipped| is_gap(&skipped)) {
            gaps.push(format!(
                "process {pid}: {path} can call its global allocator past the functions with probes, and no `GlobalAlloc` \
                 method of it has a symbol: such calls are missed"
            ));
        }
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
