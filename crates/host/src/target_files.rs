//! Opens files of targets: objects, debug files and the files with the names of generated code.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file of a target for reading.
///
/// # Errors
///
/// Errors of open(2).
pub fn open_target_file(path: &Path) -> io::Result<File> {
    File::open(path)
}
