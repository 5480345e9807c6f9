//! Separate debug files of stripped objects.

use std::path::{Path, PathBuf};

use memtrace_model::BuildId;

use super::headers::Headers;
use crate::object_files::ObjectFiles;

/// Directories of debug files in distributions, relative to a root.
pub(super) const DIRECTORIES: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// Returns `directories` below the target's root, and then below the host's root, which may have the debug files of
/// executables in a container.
pub(super) fn directories(target_root: Option<&Path>, directories: &[PathBuf]) -> Vec<PathBuf> {
    let below = |root: &Path| {
        let root = root.to_path_buf();
        directories.iter().map(move |directory| root.join(directory.strip_prefix("/").unwrap_or(directory)))
    };
    let host = Path::new("/");
    let target = target_root.filter(|&root| root != host);
    target.into_iter().chain([host]).flat_map(below).collect()
}

/// Returns the debug file with this build ID below one of `directories`.
pub(super) fn by_build_id(directories: &[PathBuf], build_id: &BuildId, files: &dyn ObjectFiles) -> Option<PathBuf> {
    let name = build_id.to_string();
    // The path is `.build-id/ab/cdef….debug`: the first byte of the build ID names a directory.
    let (first, rest) = name.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    directories
        .iter()
        .map(|directory| directory.join(".build-id").join(first).join(format!("{rest}.debug")))
        .find(|path| has_build_id(path, build_id, files))
}

fn has_build_id(path: &Path, build_id: &BuildId, files: &dyn ObjectFiles) -> bool {
    let sections = Headers::open(path, files).ok().and_then(|headers| headers.sections);
    sections.is_some_and(|sections| sections.build_id.as_ref() == Some(build_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_files::AllFiles;

    #[test]
    fn the_target_root_is_searched_before_the_host_root() {
        let usual = [PathBuf::from("/usr/lib/debug")];
        let both = directories(Some(Path::new("/proc/7/root")), &usual);
        assert_eq!(both, [PathBuf::from("/proc/7/root/usr/lib/debug"), PathBuf::from("/usr/lib/debug")]);
        assert_eq!(directories(Some(Path::new("/")), &usual), usual);
        assert_eq!(directories(None, &usual), usual);
    }

    #[test]
    fn a_build_id_too_short_for_a_path_has_no_debug_file() {
        assert_eq!(by_build_id(&[PathBuf::from("/")], &BuildId([].into()), &AllFiles), None);
        assert_eq!(by_build_id(&[PathBuf::from("/")], &BuildId([0xab].into()), &AllFiles), None);
    }
}
