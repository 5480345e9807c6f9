//! Files of fuzz targets, in memory.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use memtrace_host::procfs::descriptor_path;
use memtrace_object::ObjectFiles;
use rustix::fs::{MemfdFlags, memfd_create};

/// File at each path below a root directory.
static BELOW: Mutex<Option<File>> = Mutex::new(None);

/// Opens files by their own path, such as `/proc/self/fd/3`. Below a root directory, each path leads to the file that was set
/// last.
#[derive(Debug)]
pub struct OpenFiles;

/// Sets the file at each path below a root directory.
pub fn set_file_below(file: Option<File>) {
    *BELOW.lock().unwrap_or_else(PoisonError::into_inner) = file;
}

impl ObjectFiles for OpenFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn open_below(&self, _: &Path, _: &Path) -> io::Result<File> {
        let below = BELOW.lock().unwrap_or_else(PoisonError::into_inner);
        File::open(descriptor_path(below.as_ref().ok_or(io::ErrorKind::NotFound)?))
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
