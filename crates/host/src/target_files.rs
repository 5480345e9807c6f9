//! Opens files of targets: objects, debug files and the files with the names of generated code.
//!
//! A target chooses its paths, and what is at them. A file is looked up once, without opening it (`O_PATH`), then
//! checked, and then opened by its descriptor, so that nobody can replace it between check and open.

use std::env;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::LazyLock;

use memtrace_model::Object;
use memtrace_object::ObjectFiles;
use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, openat2};

use crate::procfs::descriptor_path;

/// Device and inode number of this process's executable; `None` if they cannot be read.
static OWN: LazyLock<Option<[u64; 2]>> = LazyLock::new(|| identity(env::current_exe().and_then(fs::metadata)).ok());

/// File systems with content that the kernel generates (include/uapi/linux/magic.h).
const GENERATED: [i64; 11] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x4249_4e4d, // binfmt_misc
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
];

/// What happens to a link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    /// The descriptor is that of the link itself, which is not a regular file.
    Keep,
}

/// A file that was looked up and is not open.
#[derive(Debug)]
pub(crate) struct Seen(File);

impl Seen {
    /// Looks up `path` below the directory `root`. Links do not lead out of it (`RESOLVE_IN_ROOT`, openat2(2), Linux
    /// 5.6).
    pub(crate) fn below(root: &Path, path: &Path, last: LastLink) -> io::Result<Self> {
        let directory = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
        let no_follow = if last == LastLink::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::PATH | OFlags::CLOEXEC | no_follow;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(Self(openat2(&directory, path, flags, Mode::empty(), resolve)?.into()))
    }

    /// Looks up a path that no target has chosen, such as one in procfs or of a descriptor.
    fn at(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map(Self)
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Opens the file for reading. Only regular files are opened: the open of a device can have side effects, and that of
    /// a pipe can block for ever. Files that the kernel generates can do both.
    pub(crate) fn open(&self) -> io::Result<File> {
        if !self.metadata()?.is_file() || GENERATED.contains(&fstatfs(&self.0)?.f_type) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // O_NONBLOCK: do not wait until another process gives up a lease on the file (fcntl(2), F_SETLEASE).
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(descriptor_path(&self.0))
    }
}

/// Opens a regular file of a target for reading. The path is in procfs, or that of a descriptor.
///
/// # Errors
///
/// Errors of open(2); [`io::ErrorKind::InvalidInput`] if it is no regular file.
pub fn open_target_file(path: &Path) -> io::Result<File> {
    Seen::at(path)?.open()
}

/// Opens the regular file at `path` below the directory `root` for reading. Links do not lead out of `root`.
///
/// # Errors
///
/// Errors of openat2(2); [`io::ErrorKind::InvalidInput`] if it is no regular file.
pub fn open_below(root: &Path, path: &Path) -> io::Result<File> {
    Seen::below(root, path, LastLink::Follow)?.open()
}

/// Opens the file of an object.
///
/// # Errors
///
/// Errors of [`open_target_file`]; [`io::ErrorKind::NotFound`] if the object has no file.
pub fn open_object(object: &Object) -> io::Result<File> {
    open_target_file(object.handle.as_deref().ok_or(io::ErrorKind::NotFound)?)
}

/// Files of targets, for functions that read several of them.
#[derive(Clone, Copy, Debug)]
pub struct TargetFiles;

impl ObjectFiles for TargetFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        open_target_file(path)
    }

    fn open_below(&self, root: &Path, path: &Path) -> io::Result<File> {
        open_below(root, path)
    }

    fn is_own_executable(&self, file: &File) -> bool {
        OWN.is_some() && identity(file.metadata()).ok() == *OWN
    }
}

fn identity(metadata: io::Result<Metadata>) -> io::Result<[u64; 2]> {
    metadata.map(|metadata| [metadata.dev(), metadata.ino()])
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use harness::Scratch;

    use super::*;

    #[test]
    fn only_the_executable_of_this_process_is_own() {
        let is_own = |path: &Path| TargetFiles.is_own_executable(&open_target_file(path).unwrap());
        assert!(is_own(&env::current_exe().unwrap()));
        assert!(!is_own(Path::new("/bin/sh")));
    }

    #[test]
    fn links_lead_to_files_below_the_root_only() {
        let scratch = Scratch::new();
        let root = scratch.subdirectory("root");
        fs::write(scratch.path("secret"), "outside").unwrap();
        fs::write(root.join("secret"), "inside").unwrap();
        let read = |path: &str| {
            let mut text = String::new();
            open_below(&root, Path::new(path)).and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        for (link, to) in [("relative", "../secret"), ("absolute", "/secret"), ("deep", "/../../secret")] {
            symlink(to, root.join(link)).unwrap();
            assert_eq!(read(link).unwrap(), "inside", "{link}");
        }
        assert_eq!(read("../secret").unwrap(), "inside");
        symlink(scratch.path("secret"), root.join("out")).unwrap();
        assert_eq!(read("out").unwrap_err().kind(), io::ErrorKind::NotFound);
        symlink("/proc/self/root/secret", root.join("magic")).unwrap();
        assert!(read("magic").is_err());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let scratch = Scratch::new();
        let root = scratch.path("");
        let fifo = scratch.pipe("fifo");
        let refused = open_below(&root, Path::new("fifo")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        for path in [fifo.as_path(), Path::new("/dev/null"), Path::new("/proc/self/maps"), &root] {
            assert_eq!(open_target_file(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }
}
