//! Opens files of targets: objects, debug files and the files with the names of generated code.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::LazyLock;

use memtrace_model::Object;
use memtrace_object::ObjectFiles;

/// Device and inode number of this process's executable; `None` if they cannot be read.
static OWN: LazyLock<Option<[u64; 2]>> = LazyLock::new(|| identity(env::current_exe().and_then(fs::metadata)).ok());

/// Opens a file of a target for reading.
///
/// # Errors
///
/// Errors of open(2).
pub fn open_target_file(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Opens the file of an object.
///
/// # Errors
///
/// Errors of open(2); [`io::ErrorKind::NotFound`] if the object has no file.
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

    fn is_own_executable(&self, file: &File) -> bool {
        OWN.is_some() && identity(file.metadata()).ok() == *OWN
    }
}

fn identity(metadata: io::Result<fs::Metadata>) -> io::Result<[u64; 2]> {
    metadata.map(|metadata| [metadata.dev(), metadata.ino()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_executable_of_this_process_is_own() {
        let is_own = |path: &Path| TargetFiles.is_own_executable(&open_target_file(path).unwrap());
        assert!(is_own(&env::current_exe().unwrap()));
        assert!(!is_own(Path::new("/bin/sh")));
    }
}
