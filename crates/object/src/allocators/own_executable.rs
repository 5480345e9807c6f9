//! Recognition of memtrace's own executable, which contains an allocator.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::LazyLock;

/// Device and inode number of this process's executable; `None` if they cannot be read.
static OWN: LazyLock<Option<[u64; 2]>> = LazyLock::new(|| identity(env::current_exe().and_then(fs::metadata)).ok());

/// Returns true for the executable of this process. A probe belongs to a file, so memtrace itself would hit probes in
/// its allocator, even if it traces another process that runs the same file.
pub(super) fn is_own(file: &File) -> bool {
    OWN.is_some() && identity(file.metadata()).ok() == *OWN
}

fn identity(metadata: io::Result<fs::Metadata>) -> io::Result<[u64; 2]> {
    metadata.map(|metadata| [metadata.dev(), metadata.ino()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_executable_of_this_process_is_own() {
        assert!(is_own(&File::open(env::current_exe().unwrap()).unwrap()));
        assert!(!is_own(&File::open("/bin/sh").unwrap()));
    }
}
