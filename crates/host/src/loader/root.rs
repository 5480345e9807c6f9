//! Path resolution in the root directory of another process.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::procfs::descriptor_path;
use crate::procfs::{Opened, regular};

/// Root directory for path resolution: memtrace's own, or an open directory.
#[derive(Debug, Default)]
pub(super) struct Root(Option<OwnedFd>);

impl Root {
    /// memtrace's root directory.
    pub(super) const OWN: Self = Self(None);

    /// Opens the directory at `path`.
    pub(super) fn open_directory(path: &Path) -> io::Result<Self> {
        Ok(Self(Some(File::open(path)?.into())))
    }

    /// Opens a regular file.
    pub(super) fn open(&self, path: &Path) -> io::Result<Opened> {
        match &self.0 {
            None => regular(path),
            Some(root) => regular(&descriptor_path(&resolve(root, path)?)),
        }
    }

    /// Reads a file.
    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut self.open(path)?.file, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns true if the file exists.
    pub(super) fn has(&self, path: &Path) -> bool {
        match &self.0 {
            None => path.exists(),
            Some(root) => resolve(root, path).is_ok(),
        }
    }

    /// Returns the path without symbolic links; `None` if they cannot be resolved, or for another root directory.
    pub(super) fn resolved(&self, path: &Path) -> Option<PathBuf> {
        match &self.0 {
            None => fs::canonicalize(path).ok(),
            Some(_) => None,
        }
    }
}

/// Resolves a path without opening the file; symbolic links stay inside `root` (openat2(2), Linux 5.6).
fn resolve(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all fields are plain numbers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT;
    // SAFETY: the path is null-terminated, `how` has the given length, and both outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size_of::<libc::open_how>())
    };
    let fd = RawFd::try_from(result).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use harness::Scratch;

    use super::*;

    #[test]
    fn symlinks_cannot_leave_the_root() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("root")).unwrap();
        fs::write(scratch.path("root/inside"), "inside").unwrap();
        fs::write(scratch.path("outside"), "outside").unwrap();
        symlink("/inside", scratch.path("root/absolute")).unwrap();
        symlink("../outside", scratch.path("root/above")).unwrap();
        let root = Root::open_directory(&scratch.path("root")).unwrap();
        assert_eq!(root.read(Path::new("/inside")).unwrap(), b"inside");
        assert_eq!(root.read(Path::new("/absolute")).unwrap(), b"inside");
        assert!(root.has(Path::new("/absolute")));
        assert!(!root.has(Path::new("/above")) && root.open(Path::new("/above")).is_err());
        assert!(root.open(Path::new("/")).is_err(), "a directory is not a regular file");
    }
}
