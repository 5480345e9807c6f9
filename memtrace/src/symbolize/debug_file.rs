//! Where the debug information of a stripped object lies.

use std::path::{Path, PathBuf};

use super::headers::Headers;
use crate::model::BuildId;

/// Where distributions install debug files, below a root.
pub(super) const DIRECTORIES: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// Every place to look in: `directories` below the target's root, then below memtrace's own, which may have the debug
/// files of what runs in a container.
pub(super) fn directories(target_root: Option<&Path>, directories: &[PathBuf]) -> Vec<PathBuf> {
    let below = |root: &Path| {
        let root = root.to_path_buf();
        directories.iter().map(move |directory| root.join(directory.strip_prefix("/").unwrap_or(directory)))
    };
    let host = Path::new("/");
    let target = target_root.filter(|&root| root != host);
    target.into_iter().chain([host]).flat_map(below).collect()
}

/// The file below one of `directories` that holds the debug information of the object with that build-id.
pub(super) fn by_build_id(directories: &[PathBuf], build_id: &BuildId) -> Option<PathBuf> {
    let name = build_id.to_string();
    // `.build-id/ab/cdef….debug`: the first byte names a directory.
    let (first, rest) = name.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    directories
        .iter()
        .map(|directory| directory.join(".build-id").join(first).join(format!("{rest}.debug")))
        .find(|path| is_of(path, build_id))
}

fn is_of(path: &Path, build_id: &BuildId) -> bool {
    let sections = Headers::read(path).ok().and_then(|headers| headers.sections);
    sections.is_some_and(|sections| sections.build_id.as_ref() == Some(build_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_root_is_searched_before_our_own_and_ours_once() {
        let wanted = [PathBuf::from("/usr/lib/debug")];
        let found = directories(Some(Path::new("/proc/7/root")), &wanted);
        assert_eq!(found, [PathBuf::from("/proc/7/root/usr/lib/debug"), PathBuf::from("/usr/lib/debug")]);
        assert_eq!(directories(Some(Path::new("/")), &wanted), wanted);
        assert_eq!(directories(None, &wanted), wanted);
    }

    #[test]
    fn a_build_id_too_short_to_be_a_path_is_no_path() {
        assert_eq!(by_build_id(&[PathBuf::from("/")], &BuildId([].into())), None);
        assert_eq!(by_build_id(&[PathBuf::from("/")], &BuildId([0xab].into())), None);
    }
}
