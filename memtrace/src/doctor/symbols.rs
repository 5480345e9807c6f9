//! Debug information of the executable and of its allocators.

use std::path::Path;

use memtrace_host::symbolizer::SymbolizerProcess;
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{Object, printable};
use memtrace_object::allocators::{Allocator, Kind, Survey};
use memtrace_object::symbolize::{NameSource, Symbolizer};

use super::finding::{Area, Finding};

/// Examines the executable and the traced allocators.
pub(super) fn examine(executable: Option<&Object>, survey: &Survey) -> Vec<Finding> {
    let symbolizer = Symbolizer::new(&TargetFiles, Box::<SymbolizerProcess>::default());
    let libraries = survey.allocators.iter().filter(|allocator| allocator.is_supported());
    let libraries =
        libraries.map(|Allocator { object, kinds, .. }| (object.as_ref(), kinds.all().iter().find_map(package)));
    let mut findings = Vec::new();
    // An allocator that is linked into the executable is not judged twice.
    let libraries = libraries.filter(|(object, _)| executable.is_none_or(|executable| executable.path != object.path));
    for (object, package) in executable.map(|object| (object, None)).into_iter().chain(libraries) {
        findings.push(judge(object, &symbolizer.name_source(object), package));
    }
    findings
}

/// Returns the package with the debug information of a C library.
fn package(kind: &Kind) -> Option<&'static str> {
    if let Kind::Known(allocator) = kind { allocator.debug_packages } else { None }
}

fn judge(object: &Object, source: &NameSource, package: Option<&str>) -> Finding {
    const SUBJECT: &str = "debug information";
    let path = printable(&object.path);
    let remedy = || {
        package.map_or_else(
            || {
                format!(
                    "compile it with -g, or install its package's debug symbols: PACKAGE-dbgsym on Debian, where \
                     dpkg -S {path} prints PACKAGE"
                )
            },
            |package| format!("install the debug symbols of the C library: {package}"),
        )
    };
    let warn = |what: &str| Finding::warn(Area::Traceable, SUBJECT, format!("{path}: {what}"), remedy());
    match source {
        NameSource::DebugInfo => Finding::ok(Area::Traceable, SUBJECT, format!("{path}: in the file itself")),
        NameSource::DebugFile(file) => {
            // Show the path relative to the target's root.
            let file = object
                .root
                .as_ref()
                .and_then(|root| file.strip_prefix(root).ok())
                .map_or_else(|| file.clone(), |below| Path::new("/").join(below));
            let detail = format!("{path}: in {}", printable(&file));
            Finding::ok(Area::Traceable, SUBJECT, detail)
        }
        NameSource::Symbols => warn("none: functions have names, but no source lines or inlined functions"),
        NameSource::Exported => warn("none, and stripped: only exported functions have names"),
        NameSource::None => warn("cannot be read, so its functions have no names"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn missing_debug_information_names_its_package() {
        let object = Object { path: "/bin/server".into(), handle: None, build_id: None, root: None };
        let found = judge(&object, &NameSource::Exported, None);
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(found.remedy.unwrap().contains("dpkg -S /bin/server"));
        let found = judge(&object, &NameSource::Symbols, package(&Kind::known("glibc").unwrap()));
        assert!(found.remedy.unwrap().contains("libc6-dbg"));
    }

    #[test]
    fn separate_debug_information_is_ok() {
        let object = Object { path: "/bin/server".into(), handle: None, build_id: None, root: None };
        let rooted = Object { root: Some(Path::new("/proc/self/fd/7").into()), ..object.clone() };
        let found = judge(&rooted, &NameSource::DebugFile("/proc/self/fd/7/usr/lib/debug/x".into()), None);
        assert_eq!(found.detail, "/bin/server: in /usr/lib/debug/x");
        for source in [NameSource::DebugInfo, NameSource::DebugFile("/usr/lib/debug/x".into())] {
            assert_eq!(judge(&object, &source, None).verdict, Verdict::Ok);
        }
    }
}
