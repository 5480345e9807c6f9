//! Disk cache of unwind tables.
//!
//! The name of an entry has the object's build ID and file size. Without a build ID, it has the identity of the file.
//! An entry is used only if it is intact and was made from the same call frame information. Otherwise the table is
//! rebuilt and the entry replaced. A directory that another user could change is refused: a wrong table would give
//! wrong stacks. For the same reason, call frame information is compared by a hash with a random key, which is in the
//! directory: an object chooses its own build ID, size and contents.

mod key;
mod used_objects;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use memtrace_model::{BuildId, printable};
use memtrace_object::eh_frame::{Error, ObjectContents, Table};

use crate::cache_directory::{self, CacheError};
use crate::target_files::open_target_file;

/// Maximum length in bytes of a build ID that names an entry. Linkers write 8 to 32 bytes.
const MAX_BUILD_ID: usize = 64;
/// Maximum size of the cache in bytes. The tables of all programs and libraries of a machine take about 200 MiB.
const MAX_BYTES: u64 = 1 << 30;

/// Path and fingerprint of a table's entry, which may not exist yet.
#[derive(Debug)]
pub(super) struct Slot {
    path: PathBuf,
    fingerprint: u128,
}

/// Disk cache of unwind tables.
#[derive(Debug)]
pub struct TableCache {
    folder: PathBuf,
    /// Key of the fingerprints.
    key: [u8; 16],
    /// Number of entries written, which makes the names of temporary files unique.
    written: AtomicU64,
}

impl TableCache {
    /// Returns the directory of the tables. `variable` reads an environment variable. Returns `None` if the environment
    /// names no directory for caches.
    pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        Some(cache_directory::base_directory(variable)?.join("memtrace"))
    }

    /// Opens or creates the cache in `folder` for the user with uid `user`. If the cache exceeds its size limit, the
    /// least recently used entries are removed.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created, or if another user could read or change its contents.
    pub fn open(folder: &Path, user: u32) -> Result<Self, CacheError> {
        let folder = cache_directory::prepare(folder, user)?;
        prune(&folder, MAX_BYTES)?;
        let key = key::read_or_create(&folder)?;
        Ok(Self { folder, key, written: AtomicU64::new(0) })
    }

    /// Returns the table of the object in `file`. The table comes from the cache, or is built and stored.
    ///
    /// # Errors
    ///
    /// The reason why the object has no table. If the cache cannot be read or written, the table is built without it.
    pub fn table(&self, file: &File, build_id: Option<&BuildId>) -> Result<Table, Error> {
        let contents = ObjectContents::read(file)?;
        let slot = self.slot(file, build_id, &contents)?;
        match slot.load() {
            Some(table) => Ok(table),
            None => self.build(&slot, &contents),
        }
    }

    /// Returns the slot for the table of `contents`, which were read from `file`.
    pub(super) fn slot(
        &self,
        file: &File,
        build_id: Option<&BuildId>,
        contents: &ObjectContents,
    ) -> Result<Slot, Error> {
        let path = self.folder.join(entry_name(&file.metadata()?, build_id));
        Ok(Slot { path, fingerprint: contents.fingerprint(&self.key) })
    }

    /// Builds the table of `contents`, and stores it in `slot`.
    pub(super) fn build(&self, slot: &Slot, contents: &ObjectContents) -> Result<Table, Error> {
        let table = Table::build(contents)?;
        if let Err(error) = self.store(&slot.path, &table.encode(slot.fingerprint)) {
            log::debug!("cannot write {}: {error}", printable(&slot.path));
        }
        Ok(table)
    }

    /// Replaces the entry at `path` atomically.
    fn store(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!(".{}-{number}", std::process::id()));
        // A killed process with the same pid may have left its temporary file.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first error is the informative one.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

impl Slot {
    /// Returns the stored table; `None` if there is none with this fingerprint.
    pub(super) fn load(&self) -> Option<Table> {
        let path = printable(&self.path);
        match load(&self.path, self.fingerprint) {
            Ok(Some(table)) => return Some(table),
            Ok(None) => log::debug!("{path} is damaged or of another object"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => log::debug!("cannot read {path}: {error}"),
        }
        None
    }
}

/// Returns the file name of an object's entry.
fn entry_name(file: &fs::Metadata, build_id: Option<&BuildId>) -> String {
    match build_id {
        Some(id) if (1..=MAX_BUILD_ID).contains(&id.0.len()) => format!("{id}-{:x}", file.size()),
        _ => {
            let (device, inode, size) = (file.dev(), file.ino(), file.size());
            format!("{device:x}-{inode:x}-{size:x}-{}.{:09}", file.mtime(), file.mtime_nsec())
        }
    }
}

/// Reads the entry at `path`; `None` if it is damaged or has another fingerprint.
fn load(path: &Path, fingerprint: u128) -> io::Result<Option<Table>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || metadata.size() > MAX_BYTES {
        return Ok(None);
    }
    let mut file = open_target_file(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.size()).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    let table = Table::decode(&bytes, fingerprint);
    if table.is_some() {
        // The modification time is the time of the last use. A failure to set it is harmless.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(table)
}

/// Removes the least recently used entries until at most `limit` bytes remain.
fn prune(folder: &Path, limit: u64) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Ok(metadata) = entry.metadata()
            && metadata.is_file()
            && entry.file_name() != key::NAME
        {
            entries.push((metadata.modified()?, metadata.size(), entry.path()));
        }
    }
    let mut bytes: u64 = entries.iter().map(|(_, size, _)| size).sum();
    entries.sort();
    for (_, size, path) in entries {
        if bytes <= limit {
            break;
        }
        bytes -= size;
        match fs::remove_file(path) {
            // Another memtrace may prune at the same time.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
