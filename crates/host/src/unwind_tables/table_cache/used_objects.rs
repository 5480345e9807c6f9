//! Lists of the objects that a command and its child processes used in earlier runs. Their tables can be loaded
//! before the objects are mapped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use memtrace_model::BuildId;

use super::{TableCache, entry_name};
use crate::target_files::open_target_file;

/// Maximum number of objects of a command. Each takes a file descriptor.
const MAX_OBJECTS: usize = 128;
/// Maximum size of a list in bytes: [`MAX_OBJECTS`] paths of the maximum length that Linux accepts (`PATH_MAX`).
const MAX_BYTES: u64 = MAX_OBJECTS as u64 * 4096;

impl TableCache {
    /// Returns the paths of the objects that the command in the file `command` used in earlier runs, the most recent
    /// ones first. The files at these paths may have been replaced since.
    #[must_use]
    pub fn used_objects(&self, command: &File) -> Vec<PathBuf> {
        let read = self.list_of(command).and_then(|list| {
            let mut bytes = Vec::new();
            if !fs::symlink_metadata(&list)?.is_file() {
                return Ok(bytes);
            }
            open_target_file(&list)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        parse(&read.unwrap_or_default())
    }

    /// Puts the objects that the command has used in this run in front of the objects of earlier runs.
    pub fn record_used_objects<'a>(&self, command: &File, objects: impl IntoIterator<Item = &'a Path>) {
        let mut list: Vec<PathBuf> = Vec::new();
        for object in objects.into_iter().map(Path::to_owned).chain(self.used_objects(command)) {
            if list.len() < MAX_OBJECTS && object.is_absolute() && !list.contains(&object) {
                list.push(object);
            }
        }
        let bytes: Vec<&[u8]> = list.iter().map(|path| path.as_os_str().as_bytes()).collect();
        let stored = self.list_of(command).and_then(|path| self.store(&path, &bytes.join(&0)));
        if let Err(error) = stored {
            log::debug!("cannot record the objects of the command: {error}");
        }
    }

    /// Returns the size in bytes of the stored table of the object in `file`; `None` if no table is stored. The table
    /// may be stale.
    #[must_use]
    pub fn stored_bytes(&self, file: &File, build_id: Option<&BuildId>) -> Option<u64> {
        let entry = self.folder.join(entry_name(&file.metadata().ok()?, build_id));
        fs::symlink_metadata(entry).ok().map(|metadata| metadata.size())
    }

    fn list_of(&self, command: &File) -> io::Result<PathBuf> {
        Ok(self.folder.join(format!("{}.objects", entry_name(&command.metadata()?, None))))
    }
}

/// Parses a list of paths, which are separated by zeros.
fn parse(list: &[u8]) -> Vec<PathBuf> {
    let paths = list.split(|&byte| byte == 0).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    paths.filter(|path| path.is_absolute()).take(MAX_OBJECTS).collect()
}
