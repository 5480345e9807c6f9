//! Files of fuzz targets, in memory.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;

use memtrace_object::ObjectFiles;
use rustix::fs::{MemfdFlags, memfd_create};

/// Opens files by their own path, such as `/proc/self/fd/3`. Below the root of a process, no file exists.
#[derive(Debug)]
pub struct OpenFiles;

impl ObjectFiles for OpenFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn open_below(&self, _: &Path, _: &Path) -> io::Result<File> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_own_executable(&self, _: &File) -> bool {
        false
    }
}

/// Returns a file with this content.
pub fn memory_with(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
