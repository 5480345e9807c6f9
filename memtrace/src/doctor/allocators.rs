//! Which allocators a target has, which of their functions are followed, and what was looked at where there is none.

use std::path::Path;

use super::kernel::microseconds;
use super::{Area, Finding};
use crate::allocators::{Allocator, FoundFunction, SkipReason, Survey, Verdict};
use crate::model::{FUNCTIONS, Naming};
use crate::session::overhead::probe_cost::ProbeCost;

/// Says what the survey of a process means, whose program is the object at `program`.
pub(super) fn examine(survey: &Survey, program: Option<&Path>) -> Vec<Finding> {
    let any = survey.allocators.iter().any(Allocator::is_supported);
    let mut findings: Vec<_> = survey.allocators.iter().flat_map(|allocator| of_one(allocator, any)).collect();
    if !any {
        let looked_at = survey.looked_at.iter();
        findings.extend(looked_at.map(|looked_at| Finding::info(AREA, "looked at", looked_at.to_string())));
        findings.push(none(survey, program));
    }
    findings
}

const AREA: Area = Area::Allocator;

fn of_one(allocator: &Allocator, any_supported: bool) -> Vec<Finding> {
    let subject = format!("allocator {}", allocator.kinds);
    let path = allocator.object.path.display();
    if !allocator.is_supported() {
        let detail = format!(
            "{path}: without both a function that allocates and one that frees that can be probed; what it hands out is \
             not in the report"
        );
        let remedy = "use the distribution's own build, or name its functions by --hook";
        // Beside one that is followed it is a gap; alone it is the end, which `none` says.
        let judge = if any_supported { Finding::warn } else { Finding::fail };
        return vec![judge(AREA, &subject, &detail, remedy)];
    }
    let followed: Vec<_> = allocator.functions.iter().map(|found| found.names().join(" = ")).collect();
    let mut findings = vec![Finding::ok(AREA, &subject, format!("{path}: {}", followed.join(", ")))];
    let lacking = lacking(allocator);
    if !lacking.is_empty() {
        findings.push(Finding::info(AREA, &subject, format!("does not have {}", lacking.join(", "))));
    }
    findings.extend(skipped(allocator).into_iter().map(|(reason, symbols)| {
        let detail = format!("does not follow {}: {reason}", symbols.join(", "));
        match reason {
            SkipReason::Throws => Finding::warn(
                AREA,
                &subject,
                detail,
                "have the program's C++ allocate by malloc, or link another build",
            ),
            _ => Finding::info(AREA, &subject, detail),
        }
    }));
    findings
}

/// What is not followed, by its reason.
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

/// Says of each function that is followed where its probe goes, what a hit costs, and why it goes there.
pub(super) fn probes(allocator: &Allocator, traps: Option<ProbeCost>) -> Vec<Finding> {
    let followed = allocator.functions.iter().filter(|_| allocator.is_supported());
    let finding = |found: &FoundFunction| {
        let price = traps
            .map_or_else(String::new, |traps| format!(", {} a call", microseconds(traps.per_call(found.site.cost))));
        let detail = format!("{}{price}: {}", found.summary(&allocator.object.path), found.site.reason);
        Finding::info(AREA, "probe", detail)
    };
    followed.map(finding).collect()
}

/// The C library's functions that are neither followed nor skipped; nothing where the allocator is none of that kind.
fn lacking(allocator: &Allocator) -> Vec<&'static str> {
    let followed = || allocator.functions.iter().flat_map(|found| &found.functions).map(|function| function.name);
    let skipped = || allocator.skipped.iter().map(|skipped| skipped.symbol.split('@').next().unwrap_or_default());
    if !followed().any(|name| name == "malloc") {
        return Vec::new();
    }
    let standard = FUNCTIONS.iter().filter(|function| function.naming == Naming::Standard);
    standard
        .map(|function| function.name)
        .filter(|name| !followed().chain(skipped()).any(|known| known == *name))
        .collect()
}

fn none(survey: &Survey, program: Option<&Path>) -> Finding {
    let is_static = survey
        .looked_at
        .iter()
        .any(|looked_at| Some(looked_at.path.as_path()) == program && looked_at.verdict == Verdict::NoSymbols);
    let (detail, remedy) = if is_static {
        (
            "the program is statically linked and stripped: nothing of what it allocates can be followed",
            "keep its table of symbols: link it without -s, Rust's with strip = \"debuginfo\" or none, and do not strip it",
        )
    } else {
        (
            "none that memtrace knows: nothing of what the process allocates can be followed",
            "memtrace knows glibc, musl, jemalloc, tcmalloc, mimalloc and whatever defines malloc and free; name other \
             functions by --hook",
        )
    };
    Finding::fail(AREA, "allocator", detail, remedy)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Verdict as Judged;
    use super::*;
    use crate::allocators::{ExaminedObject, Kind, Kinds, Skipped};
    use crate::model::{Bytes, FileOffset, Function, Object, VirtOffset};
    use crate::probe_site::{Cost as ProbeCost, Reason as SiteReason, Site};

    fn row(name: &str) -> &'static Function {
        FUNCTIONS.iter().find(|function| function.name == name).unwrap()
    }

    fn at(names: &[&str]) -> FoundFunction {
        FoundFunction {
            functions: names.iter().map(|name| row(name)).collect(),
            symbols: names.iter().map(|&name| name.to_owned()).collect(),
            signature: row(names[0]).signature,
            return_sites: Vec::new(),
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

    fn allocator(path: &str, kind: Kind, functions: Vec<FoundFunction>) -> Allocator {
        let object = Arc::new(Object { path: path.into(), handle: None, build_id: None, root: None });
        Allocator { object, kinds: Kinds::one(kind), functions, skipped: Vec::new() }
    }

    fn musl() -> Allocator {
        let mut functions: Vec<_> = ["malloc", "calloc", "realloc", "free"].map(|name| at(&[name])).into();
        functions.push(at(&["aligned_alloc", "memalign"]));
        let mut musl = allocator("/lib/ld-musl.so.1", Kind::Musl, functions);
        musl.skipped.push(Skipped { symbol: "valloc@V1".into(), reason: SkipReason::Indirect });
        musl
    }

    fn told(survey: &Survey, program: &str) -> Vec<(Judged, String, String)> {
        let findings = examine(survey, Some(Path::new(program)));
        findings.into_iter().map(|found| (found.verdict, found.subject, found.detail)).collect()
    }

    #[test]
    fn an_allocators_functions_are_listed_with_aliases_and_with_what_is_not_followed() {
        let survey = Survey { allocators: vec![musl()], looked_at: Vec::new() };
        let line = |verdict, detail: &str| (verdict, "allocator musl".to_owned(), detail.to_owned());
        let expected = [
            line(Judged::Ok, "/lib/ld-musl.so.1: malloc, calloc, realloc, free, aligned_alloc = memalign"),
            line(Judged::Info, "does not have reallocarray, posix_memalign, pvalloc, free_sized, free_aligned_sized"),
            line(
                Judged::Info,
                "does not follow valloc@V1: an indirect function, whose code only chooses the one that is called",
            ),
        ];
        assert_eq!(told(&survey, "/bin/a"), expected);
    }

    #[test]
    fn an_allocator_that_cannot_be_probed_is_a_gap_beside_another_and_the_end_alone() {
        let unknown = || allocator("/lib/libmine.so.2", Kind::Other("libmine.so.2".into()), Vec::new());
        let verdict = |allocators| told(&Survey { allocators, looked_at: Vec::new() }, "/bin/a")[0].0;
        assert_eq!(verdict(vec![unknown(), musl()]), Judged::Warn);
        assert_eq!(verdict(vec![unknown()]), Judged::Fail);
        // glibc, but for free.
        let half = allocator("/lib/libc.so.6", Kind::Glibc, vec![at(&["malloc"])]);
        assert_eq!(verdict(vec![half]), Judged::Fail);
    }

    #[test]
    fn without_an_allocator_what_was_looked_at_is_listed_and_a_static_program_is_told() {
        let looked_at = |path: &str, verdict| ExaminedObject { path: path.into(), verdict };
        let looked_at =
            vec![looked_at("/bin/a", Verdict::NoSymbols), looked_at("/lib/libz.so.1", Verdict::Lacks("malloc"))];
        let survey = Survey { allocators: Vec::new(), looked_at };
        let line = |verdict, subject: &str, detail: &str| (verdict, subject.to_owned(), detail.to_owned());
        let expected = [
            line(
                Judged::Info,
                "looked at",
                "/bin/a: statically linked and stripped, so that its allocator cannot be found",
            ),
            line(Judged::Info, "looked at", "/lib/libz.so.1: no allocator, does not define malloc"),
        ];
        let found = told(&survey, "/bin/a");
        assert_eq!(found[..2], expected);
        assert!(found[2].2.contains("statically linked"), "{found:?}");
        assert!(told(&survey, "/bin/b")[2].2.contains("none that memtrace knows"));
    }
}
