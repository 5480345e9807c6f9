//! Allocators of a target with their hooked functions, or the examined objects of a target without an allocator.

use std::path::Path;
use std::time::Duration;

use memtrace_model::{FUNCTIONS, Naming, printable};
use memtrace_object::allocators::{Allocator, HookedFunction, SkipReason, Survey, Verdict};

use super::finding::{Area, Finding};
use super::kernel::microseconds;
use crate::run_kit::probe_cost::ProbeCost;

/// Reports the survey of a process that runs `executable`.
pub(super) fn examine(survey: &Survey, executable: Option<&Path>) -> Vec<Finding> {
    let any = survey.allocators.iter().any(Allocator::is_supported);
    let mut findings: Vec<_> = survey.allocators.iter().flat_map(|allocator| examine_one(allocator, any)).collect();
    if !any {
        let examined = survey.examined.iter();
        findings.extend(examined.map(|object| Finding::info(AREA, "examined", object.to_string())));
        findings.push(no_allocator(survey, executable));
    }
    findings
}

const AREA: Area = Area::Allocator;

fn examine_one(allocator: &Allocator, any_supported: bool) -> Vec<Finding> {
    let subject = format!("allocator {}", allocator.kinds);
    let path = printable(&allocator.object.path);
    if !allocator.is_supported() {
        let detail = format!(
            "{path}: has no probeable function that allocates, or none that frees; its blocks are not in the report"
        );
        let remedy = "use the distribution's build, or name its functions with --hook";
        // If another allocator is supported, the report only has a gap. Otherwise nothing can be
        // traced.
        let judge = if any_supported { Finding::warn } else { Finding::fail };
        return vec![judge(AREA, &subject, &detail, remedy)];
    }
    let named = allocator.functions.iter().filter(|found| found.function().naming != Naming::Code);
    let hooked: Vec<_> = named.map(|found| found.names().join(" = ")).collect();
    let mut findings = vec![Finding::ok(AREA, &subject, format!("{path}: {}", hooked.join(", ")))];
    let lacking = lacking(allocator);
    if !lacking.is_empty() {
        findings.push(Finding::info(AREA, &subject, format!("does not define {}", lacking.join(", "))));
    }
    findings.extend(skipped(allocator).into_iter().map(|(reason, symbols)| {
        let detail = format!("does not hook {}: {reason}", symbols.join(", "));
        match reason {
            SkipReason::Throws => Finding::warn(
                AREA,
                &subject,
                detail,
                "use a C++ runtime that allocates with malloc, or link another build",
            ),
            _ => Finding::info(AREA, &subject, detail),
        }
    }));
    findings
}

/// Returns the symbols that are not hooked, by reason.
fn skipped(allocator: &Allocator) -> Vec<(SkipReason, Vec<&str>)> {
    let mut reasons: Vec<(SkipReason, Vec<&str>)> = Vec::new();
    for skipped in &allocator.skipped {
        match reasons.iter_mut().find(|(reason, _)| *reason == skipped.reason) {
            Some((_, symbols)) => symbols.push(&skipped.symbol),
            None => reasons.push((skipped.reason, vec![&skipped.symbol])),
        }
    }
    reasons
}

/// Reports the probe site of each hooked function, with its cost and the reason for the choice. For a function that returns
/// blocks, reports the result sites too, or the reason that they are not probed.
pub(super) fn probes(allocator: &Allocator, probe_cost: Option<ProbeCost>) -> Vec<Finding> {
    let hooked = allocator.functions.iter().filter(|_| allocator.is_supported());
    let price = |cost: &dyn Fn(ProbeCost) -> Duration| {
        probe_cost.map_or_else(String::new, |of| format!(", {} per call", microseconds(cost(of))))
    };
    let findings = |found: &HookedFunction| {
        let name = &found.names()[0];
        let results = match &found.results {
            None => None,
            Some(Ok(sites)) => {
                let price = price(&|of| of.at_result_site());
                Some(format!(
                    "{name}  result sites {}{price}, instead of entry and return",
                    sites.summary(found.file_offset)
                ))
            }
            Some(Err(refusal)) => Some(format!("{name}  entry and return are probed: {refusal}")),
        };
        let at_entry = format!(
            "{}{}: {}",
            found.summary(&allocator.object.path),
            price(&|of| of.per_call(found.site.cost)),
            found.site.reason
        );
        [Some(at_entry), results].into_iter().flatten().map(|detail| Finding::info(AREA, "probe", detail))
    };
    hooked.flat_map(findings).collect()
}

/// Returns the standard functions that the allocator does not define; none if the allocator has no
/// `malloc`.
fn lacking(allocator: &Allocator) -> Vec<&'static str> {
    let hooked = || allocator.functions.iter().flat_map(|found| &found.functions).map(|function| function.name);
    let skipped = || allocator.skipped.iter().map(|skipped| skipped.symbol.split('@').next().unwrap_or_default());
    if !hooked().any(|name| name == "malloc") {
        return Vec::new();
    }
    let standard = FUNCTIONS.iter().filter(|function| function.naming == Naming::Standard);
    standard
        .map(|function| function.name)
        .filter(|name| !hooked().chain(skipped()).any(|defined| defined == *name))
        .collect()
}

fn no_allocator(survey: &Survey, executable: Option<&Path>) -> Finding {
    let is_static = survey
        .examined
        .iter()
        .any(|object| Some(object.path.as_path()) == executable && object.verdict == Verdict::NoSymbols);
    let (detail, remedy) = if is_static {
        (
            "the executable is statically linked and stripped: its allocations cannot be traced",
            "keep its symbol table: link it without -s, for Rust with strip = \"debuginfo\" or none, and do not strip it",
        )
    } else {
        (
            "none that memtrace knows: the allocations of the process cannot be traced",
            "memtrace traces every object that defines malloc and free; name other functions with --hook",
        )
    };
    Finding::fail(AREA, "allocator", detail, remedy)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memtrace_model::{Bytes, FileOffset, Function, Object, VirtOffset};
    use memtrace_object::allocators::{ExaminedObject, Kind, Kinds, Skipped};
    use memtrace_object::probe_site::{Cost as ProbeCost, Reason as SiteReason, Site};

    use super::*;
    use crate::doctor::Verdict as FindingVerdict;

    fn row(name: &str) -> &'static Function {
        FUNCTIONS.iter().find(|function| function.name == name).unwrap()
    }

    fn at(names: &[&str]) -> HookedFunction {
        HookedFunction {
            functions: names.iter().map(|name| row(name)).collect(),
            symbols: names.iter().map(|&name| name.to_owned()).collect(),
            signature: row(names[0]).signature,
            return_sites: Vec::new(),
            loaded_word: None,
            results: None,
            file_offset: FileOffset(0),
            virt: VirtOffset(0),
            size: Bytes(0),
            site: Site {
                offset: 0,
                file_offset: FileOffset(0),
                instruction: String::from("push %rbp"),
                cost: ProbeCost::Emulated,
                reason: SiteReason::EntryEmulated,
            },
        }
    }

    fn allocator(path: &str, kind: Kind, functions: Vec<HookedFunction>) -> Allocator {
        let object = Arc::new(Object { path: path.into(), handle: None, build_id: None, root: None });
        Allocator { object, kinds: Kinds::one(kind), functions, skipped: Vec::new() }
    }

    fn musl() -> Allocator {
        let mut functions: Vec<_> = ["malloc", "calloc", "realloc", "free"].map(|name| at(&[name])).into();
        functions.push(at(&["aligned_alloc", "memalign"]));
        let mut musl = allocator("/lib/ld-musl.so.1", Kind::known("musl").unwrap(), functions);
        musl.skipped.push(Skipped { symbol: "valloc@V1".into(), reason: SkipReason::Indirect });
        musl
    }

    fn examined(survey: &Survey, executable: &str) -> Vec<(FindingVerdict, String, String)> {
        let findings = examine(survey, Some(Path::new(executable)));
        findings.into_iter().map(|found| (found.verdict, found.subject, found.detail)).collect()
    }

    #[test]
    fn functions_are_listed_with_aliases_and_omissions() {
        let survey = Survey { allocators: vec![musl()], examined: Vec::new() };
        let line = |verdict, detail: &str| (verdict, "allocator musl".to_owned(), detail.to_owned());
        let expected = [
            line(FindingVerdict::Ok, "/lib/ld-musl.so.1: malloc, calloc, realloc, free, aligned_alloc = memalign"),
            line(
                FindingVerdict::Info,
                "does not define reallocarray, posix_memalign, pvalloc, free_sized, free_aligned_sized",
            ),
            line(
                FindingVerdict::Info,
                "does not hook valloc@V1: an indirect function: its code only chooses the called function",
            ),
        ];
        assert_eq!(examined(&survey, "/bin/a"), expected);
    }

    #[test]
    fn unsupported_allocator_alone_is_a_failure() {
        let unknown = || allocator("/lib/libmine.so.2", Kind::Other("libmine.so.2".into()), Vec::new());
        let verdict = |allocators| examined(&Survey { allocators, examined: Vec::new() }, "/bin/a")[0].0;
        assert_eq!(verdict(vec![unknown(), musl()]), FindingVerdict::Warn);
        assert_eq!(verdict(vec![unknown()]), FindingVerdict::Fail);
        // glibc without free.
        let half = allocator("/lib/libc.so.6", Kind::known("glibc").unwrap(), vec![at(&["malloc"])]);
        assert_eq!(verdict(vec![half]), FindingVerdict::Fail);
    }

    #[test]
    fn examined_objects_are_listed_without_an_allocator() {
        let object = |path: &str, verdict| ExaminedObject { path: path.into(), verdict };
        let objects = vec![object("/bin/a", Verdict::NoSymbols), object("/lib/libz.so.1", Verdict::Lacks("malloc"))];
        let survey = Survey { allocators: Vec::new(), examined: objects };
        let line = |verdict, subject: &str, detail: &str| (verdict, subject.to_owned(), detail.to_owned());
        let expected = [
            line(
                FindingVerdict::Info,
                "examined",
                "/bin/a: statically linked and stripped: its allocator cannot be found",
            ),
            line(FindingVerdict::Info, "examined", "/lib/libz.so.1: no allocator, does not define malloc"),
        ];
        let found = examined(&survey, "/bin/a");
        assert_eq!(found[..2], expected);
        assert!(found[2].2.contains("statically linked"), "{found:?}");
        assert!(examined(&survey, "/bin/b")[2].2.contains("none that memtrace knows"));
    }
}
