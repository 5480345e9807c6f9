//! Path resolution in the root directory of another process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::procfs::Opened;
use crate::target_files::TargetRoot;

/// Root directory for path resolution: memtrace's own, or an open directory.
#[derive(Debug, Default)]
pub(super) struct Root(Option<TargetRoot>);

impl Root {
    /// memtrace's root directory.
    pub(super) const OWN: Self = Self(None);

    /// Opens the directory at `path`.
    pub(super) fn open_directory(path: &Path) -> io::Result<Self> {
        Ok(Self(Some(TargetRoot::open_directory(path)?)))
    }

    /// Opens a regular file.
    pub(super) fn open(&self, path: &Path) -> io::Result<Opened> {
        match &self.0 {
            None => Opened::at(path),
            Some(root) => Ok(Opened::of(root.open(path)?)),
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
            Some(root) => root.has(path),
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
