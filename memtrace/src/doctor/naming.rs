//! By what the functions in stacks can be named: debug information of the program, and of the allocators.

use std::path::Path;

use super::{Area, Finding};
use crate::allocators::{Allocator, Kind, Survey};
use crate::model::Object;
use crate::symbolize::{NamedBy, Symbolizer};

/// Looks at the program and at the allocators that are followed.
pub(super) fn examine(program: Option<&Object>, survey: &Survey) -> Vec<Finding> {
    let symbolizer = Symbolizer::new();
    let libraries = survey.allocators.iter().filter(|allocator| allocator.is_supported());
    let libraries =
        libraries.map(|Allocator { object, kinds, .. }| (object.as_ref(), kinds.all().iter().find_map(package)));
    let mut findings = Vec::new();
    // A program may have its allocator linked in.
    let libraries = libraries.filter(|(object, _)| program.is_none_or(|program| program.path != object.path));
    for (object, package) in program.map(|object| (object, None)).into_iter().chain(libraries) {
        findings.push(judge(object, &symbolizer.named_by(object), package));
    }
    findings
}

/// The package that has the debug information of a C library.
fn package(kind: &Kind) -> Option<&'static str> {
    match kind {
        Kind::Glibc => Some("libc6-dbg (Debian, Ubuntu) or glibc-debuginfo (Fedora, SUSE)"),
        Kind::Musl => Some("musl-dbgsym (Debian) or musl-dbg (Alpine)"),
        _ => None,
    }
}

fn judge(object: &Object, named_by: &NamedBy, package: Option<&str>) -> Finding {
    const SUBJECT: &str = "debug information";
    let path = object.path.display();
    let remedy = || {
        package.map_or_else(
            || {
                format!(
                    "compile it with -g; of a package, install the debug symbols: PACKAGE-dbgsym on Debian, where \
                     PACKAGE is what dpkg -S {path} says"
                )
            },
            |package| format!("install the debug symbols of the C library: {package}"),
        )
    };
    let warn = |what: &str| Finding::warn(Area::Traceable, SUBJECT, format!("{path}: {what}"), remedy());
    match named_by {
        NamedBy::DebugInfo => Finding::ok(Area::Traceable, SUBJECT, format!("{path}: in the file itself")),
        NamedBy::DebugFile(file) => {
            // Below the target's root, as the target and its administrator call it.
            let file = object
                .root
                .as_ref()
                .and_then(|root| file.strip_prefix(root).ok())
                .map_or_else(|| file.clone(), |below| Path::new("/").join(below));
            let detail = format!("{path}: in {}", file.display());
            Finding::ok(Area::Traceable, SUBJECT, detail)
        }
        NamedBy::DebugLink => {
            let detail = format!("{path}: in a file that it names, if that is installed");
            Finding::info(Area::Traceable, SUBJECT, detail)
        }
        NamedBy::Symbols => warn("none: functions have names, but neither source lines nor what is inlined into them"),
        NamedBy::Exported => warn("none, and stripped: only the functions that others may call have names"),
        NamedBy::Nothing => warn("cannot be read: its functions have no names"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn what_is_missing_comes_with_the_package_that_has_it() {
        let object = Object { path: "/bin/server".into(), handle: None, build_id: None, root: None };
        let found = judge(&object, &NamedBy::Exported, None);
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(found.remedy.unwrap().contains("dpkg -S /bin/server"));
        let found = judge(&object, &NamedBy::Symbols, package(&Kind::Glibc));
        assert!(found.remedy.unwrap().contains("libc6-dbg"));
    }

    #[test]
    fn debug_information_is_good_wherever_it_is() {
        let object = Object { path: "/bin/server".into(), handle: None, build_id: None, root: None };
        let rooted = Object { root: Some("/proc/self/fd/7".into()), ..object.clone() };
        let found = judge(&rooted, &NamedBy::DebugFile("/proc/self/fd/7/usr/lib/debug/x".into()), None);
        assert_eq!(found.detail, "/bin/server: in /usr/lib/debug/x");
        for named_by in [NamedBy::DebugInfo, NamedBy::DebugFile("/usr/lib/debug/x".into())] {
            assert_eq!(judge(&object, &named_by, None).verdict, Verdict::Ok);
        }
    }
}
