//! Paths as somebody else's linker resolves them: below that process' root directory.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::procfs::descriptor_path;
use crate::procfs::objects::{Opened, regular};

/// A root directory.
#[derive(Debug, Default)]
pub(crate) struct Root(Option<OwnedFd>);

impl Root {
    /// memtrace's own.
    pub(crate) const OWN: Self = Self(None);

    /// The directory at `path`.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self(Some(File::open(path)?.into())))
    }

    /// Opens a regular file.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Opened> {
        match &self.0 {
            None => regular(path),
            Some(root) => regular(&descriptor_path(&walked(root, path)?)),
        }
    }

    /// The contents of a file.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut self.open(path)?.file, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether there is a file.
    pub(crate) fn has(&self, path: &Path) -> bool {
        match &self.0 {
            None => path.exists(),
            Some(root) => walked(root, path).is_ok(),
        }
    }

    /// The path without links; `None` where that cannot be told, as below another root.
    pub(crate) fn resolved(&self, path: &Path) -> Option<PathBuf> {
        match &self.0 {
            None => fs::canonicalize(path).ok(),
            Some(_) => None,
        }
    }
}

/// Walks to a file without opening it, all links on the way being below `root` too (openat2(2), Linux 5.6).
fn walked(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all fields are plain numbers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT;
    // SAFETY: the path ends with a zero, and `how` is as long as is said; both outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size_of::<libc::open_how>())
    };
    let fd = RawFd::try_from(result).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn links_lead_to_files_below_the_root_and_nowhere_else() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("root")).unwrap();
        fs::write(scratch.path("root/inside"), "inside").unwrap();
        fs::write(scratch.path("outside"), "outside").unwrap();
        symlink("/inside", scratch.path("root/absolute")).unwrap();
        symlink("../outside", scratch.path("root/above")).unwrap();
        let root = Root::at(&scratch.path("root")).unwrap();
        assert_eq!(root.read(Path::new("/inside")).unwrap(), b"inside");
        assert_eq!(root.read(Path::new("/absolute")).unwrap(), b"inside");
        assert!(root.has(Path::new("/absolute")));
        assert!(!root.has(Path::new("/above")) && root.open(Path::new("/above")).is_err());
        assert!(root.open(Path::new("/")).is_err(), "a directory is no file");
    }
}
