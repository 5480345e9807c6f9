//! Separate debug files of stripped objects.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use memtrace_model::{BuildId, Object};

use super::debug_link::{AltLink, DebugLink};
use super::headers::Headers;
use crate::object_files::ObjectFiles;

/// Directories of debug files in distributions, relative to a root.
pub(super) const DIRECTORIES: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// Root of the host's files.
const HOST: &str = "/";

/// A separate debug file.
#[derive(Debug)]
pub(super) struct DebugFile {
    pub(super) file: File,
    /// Path of the file on the host.
    pub(super) path: PathBuf,
}

/// Looks for the debug files of one object: below the target's root, and then below the host's root, which may have the
/// debug files of executables in a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    pub(super) object: &'a Object,
    /// Directories of debug files, relative to a root.
    pub(super) directories: &'a [PathBuf],
    pub(super) files: &'a dyn ObjectFiles,
}

impl Search<'_> {
    /// Returns the debug file with this build ID.
    pub(super) fn by_build_id(&self, build_id: &BuildId) -> Option<DebugFile> {
        let name = build_id.to_string();
        // The path is `.build-id/ab/cdef….debug`: the first byte of the build ID names a directory.
        let (first, rest) = name.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
        let file = Path::new(".build-id").join(first).join(format!("{rest}.debug"));
        self.in_directories(&file, build_id)
    }

    /// Returns the supplementary file of debug information.
    pub(super) fn supplementary(&self, link: &AltLink) -> Option<File> {
        self.in_directories(&link.path, &link.build_id).map(|found| found.file)
    }

    /// Returns the file with this path below a directory of debug files, if it has the build ID.
    fn in_directories(&self, file: &Path, build_id: &BuildId) -> Option<DebugFile> {
        let paths: Vec<_> = self.directories.iter().map(|directory| directory.join(file)).collect();
        self.find(&[], &paths, |file| {
            let sections = Headers::read(file).ok().and_then(|headers| headers.sections);
            sections.is_some_and(|sections| sections.build_id.as_ref() == Some(build_id))
        })
    }

    /// Returns the debug file that `.gnu_debuglink` names. It is in the directory of the object, in `.debug` there, or in a
    /// directory of debug files, with or without the path of the object (GDB manual, "Debugging Information in Separate Files").
    /// `object`: the open file of the object.
    pub(super) fn by_link(&self, object: &File, link: &DebugLink) -> Option<DebugFile> {
        let own = self.object.path.parent()?;
        let inside = own.strip_prefix(HOST).unwrap_or(own);
        let name = OsStr::from_bytes(&link.name);
        let beside = [own.join(name), own.join(".debug").join(name)];
        let global = self.directories.iter().flat_map(|directory| [directory.join(inside), directory.clone()]);
        let global: Vec<_> = global.map(|directory| directory.join(name)).collect();
        self.find(&beside, &global, |file| {
            self.files.checksum(object, file).is_ok_and(|checksum| checksum == link.checksum)
        })
    }

    /// Looks for a file `beside` the object and then at the paths `global`. Below the host's root, only `global` is tried: a
    /// target with a mount namespace can give its directories any name, such as the name of the host's `/etc`.
    fn find(&self, beside: &[PathBuf], global: &[PathBuf], is_wanted: impl Fn(&File) -> bool) -> Option<DebugFile> {
        let host = Path::new(HOST);
        let target = self.object.root.as_deref().into_iter();
        let in_target = target.flat_map(|root| beside.iter().chain(global).map(move |path| (root, path)));
        let on_host = global.iter().map(|path| (host, path)).filter(|_| self.object.root.as_deref() != Some(host));
        in_target.chain(on_host).find_map(|(root, path)| {
            let file = self.files.open_below(root, path).ok().filter(&is_wanted)?;
            Some(DebugFile { file, path: root.join(path.strip_prefix(HOST).unwrap_or(path)) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_files::AllFiles;

    fn own_executable() -> File {
        File::open("/proc/self/exe").unwrap()
    }

    #[test]
    fn a_build_id_too_short_for_a_path_has_no_debug_file() {
        let object = Object { path: "/a".into(), handle: None, build_id: None, root: None };
        let search = Search { object: &object, directories: &[PathBuf::from("/")], files: &AllFiles };
        assert!(search.by_build_id(&BuildId([].into())).is_none());
        assert!(search.by_build_id(&BuildId([0xab].into())).is_none());
    }

    #[test]
    fn the_target_root_is_searched_before_the_host_root() {
        let scratch = harness::Scratch::new();
        std::fs::create_dir_all(scratch.path("root/debug")).unwrap();
        let (inside, outside) = (scratch.path("root/debug/a"), scratch.path("a"));
        for path in [&inside, &outside] {
            std::fs::write(path, "123456789").unwrap();
        }
        let root = Some(scratch.path("root").into());
        let object = Object { path: "/bin/a".into(), handle: None, build_id: None, root };
        let directories = [PathBuf::from("/debug"), scratch.path("")];
        let search = Search { object: &object, directories: &directories, files: &AllFiles };
        // The check value of CRC-32/ISO-HDLC.
        let open = own_executable();
        let found = |checksum| search.by_link(&open, &DebugLink { name: b"a".as_slice().into(), checksum });
        assert_eq!(found(0xcbf4_3926).map(|found| found.path), Some(inside.clone()));
        assert!(found(0xcbf4_3927).is_none());
        std::fs::remove_file(inside).unwrap();
        assert_eq!(found(0xcbf4_3926).map(|found| found.path), Some(outside));
    }

    #[test]
    fn directory_of_an_object_is_not_searched_on_the_host() {
        let scratch = harness::Scratch::new();
        let _ = scratch.subdirectory("root");
        std::fs::write(scratch.path("secret"), "123456789").unwrap();
        let link = DebugLink { name: b"secret".as_slice().into(), checksum: 0xcbf4_3926 };
        let found = |root: Option<&Path>| {
            let root = root.map(Into::into);
            let object = Object { path: scratch.path("program"), handle: None, build_id: None, root };
            Search { object: &object, directories: &[], files: &AllFiles }.by_link(&own_executable(), &link).is_some()
        };
        assert!(found(Some(Path::new("/"))));
        assert!(!found(Some(&scratch.path("root"))));
        assert!(!found(None), "the root of an ended process is not known");
    }
}
