//! Notes about the allocators and functions of a process that memtrace does not trace.

use memtrace_model::{Pid, printable};
use memtrace_object::allocators::{Kind, SkipReason, Skipped, Survey, Verdict};

/// Maximum number of functions of an allocator that are named. Each allocator type of a Rust program has four methods.
const MAX_NAMES: usize = 8;

/// Describes the allocations of a process that tracing will miss. `has_profile`: true if Go's own heap profile is read.
pub(super) fn coverage_gaps(pid: Pid, survey: &Survey, has_profile: bool) -> Vec<String> {
    let mut gaps = Vec::new();
    for allocator in &survey.allocators {
        let path = printable(&allocator.object.path);
        if !allocator.is_supported() {
            gaps.push(format!("process {pid} also has the allocator {path}, which memtrace does not trace"));
        }
        let is_gap = |skipped: &&Skipped| match skipped.reason {
            SkipReason::Throws => true,
            // If the Rust code of an object has no allocator of its own, its allocator methods only call functions with probes.
            SkipReason::UnknownArguments => allocator.kinds.all().contains(&Kind::Rust),
            _ => false,
        };
        let skipped: Vec<&Skipped> = allocator.skipped.iter().filter(is_gap).collect();
        let named = skipped.iter().take(MAX_NAMES);
        gaps.extend(named.map(|skipped| format!("process {pid}: {} of {path}: {}", skipped.name(), skipped.reason)));
        if skipped.len() > MAX_NAMES {
            gaps.push(format!("process {pid}: calls of other functions of {path} are missed for the same reasons"));
        }
        if allocator.has_only_rustc_functions() && skipped.is_empty() {
            gaps.push(format!(
                "process {pid}: {path} can call its global allocator past the functions with probes, and no `GlobalAlloc` \
                 method of it has a symbol: such calls are missed"
            ));
        }
    }
    let is_untraced = |verdict: &Verdict| *verdict == Verdict::Own || *verdict == Verdict::Go && !has_profile;
    let untraced = survey.examined.iter().filter(|examined| is_untraced(&examined.verdict));
    gaps.extend(untraced.map(|examined| format!("process {pid}: {examined}")));
    gaps
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use memtrace_model::Object;
    use memtrace_object::allocators::{Allocator, Kinds};

    use super::*;

    #[test]
    fn functions_without_probes_are_named_up_to_a_limit() {
        let object = Arc::new(Object { path: "/bin/app".into(), handle: None, build_id: None, root: None });
        let skipped = |number: usize| Skipped { symbol: format!("m{number}"), reason: SkipReason::UnknownArguments };
        let gaps = |count: usize| {
            let (object, kinds) = (Arc::clone(&object), Kinds::one(Kind::Rust));
            let skipped = (0..count).map(skipped).collect();
            let allocators = vec![Allocator { object, kinds, functions: Vec::new(), skipped }];
            coverage_gaps(Pid(7), &Survey { allocators, examined: Vec::new() }, false)
        };
        let named = gaps(MAX_NAMES);
        // The first note is about the allocator, which has no probes.
        assert_eq!(named.len(), 1 + MAX_NAMES);
        assert!(named[MAX_NAMES].starts_with("process 7: m7 of /bin/app: "), "{named:?}");
        let limited = gaps(100);
        assert_eq!(limited[..=MAX_NAMES], named);
        let last = "process 7: calls of other functions of /bin/app are missed for the same reasons";
        assert_eq!(limited[MAX_NAMES + 1..], [last]);
    }

    #[test]
    fn a_heap_that_is_not_traced_is_named() {
        let mut survey = Survey::default();
        for (path, verdict) in [("/bin/go", Verdict::Go), ("/bin/memtrace", Verdict::Own), ("/bin/sh", Verdict::NotElf)]
        {
            survey.add(Path::new(path), verdict, None, || unreachable!("without an allocator"));
        }
        let gaps = coverage_gaps(Pid(7), &survey, false);
        let [go, own] = gaps.as_slice() else { panic!("{gaps:?}") };
        assert!(go.starts_with("process 7: /bin/go: made by Go"), "{go}");
        assert!(own.ends_with("its allocator is not traced; trace a process that runs a copy of the file"), "{own}");
        assert_eq!(coverage_gaps(Pid(7), &survey, true), gaps[1..]);
    }
}
