//! Tables kept on disk, so that the next run need not build them.
//!
//! An entry is found by the object's build-id, or by its file where it has none, and is believed only if it was made of
//! the same call frame information and is whole. Anything else is built again and replaced. Nothing is read or written
//! in a folder that anybody else could change: a wrong table would be wrong stacks.

mod encoding;
mod folder;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::error::Error;
use super::read;
use super::table::Table;
use crate::model::BuildId;

pub use folder::{CacheError, directory};

/// The longest build-id that names an entry; linkers write 8 to 32 bytes.
const MAX_BUILD_ID: usize = 64;
/// How many bytes of entries are kept. All programs and libraries of a machine make about 200 MiB.
const MAX_BYTES: u64 = 1 << 30;

/// Tables on disk.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Makes the names of files that are being written differ.
    written: AtomicU64,
}

impl Cache {
    /// Opens the cache in `folder`, making it if it is not there, for the user whose id is `user`. When it has grown too
    /// large, what has not been used for longest is removed.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made, or when somebody else could change what is in it.
    pub fn open(folder: &Path, user: u32) -> Result<Self, CacheError> {
        let folder = folder::prepare(folder, user)?;
        prune(&folder, MAX_BYTES)?;
        Ok(Self { folder, written: AtomicU64::new(0) })
    }

    /// The table of the object in `file`: from the cache, or built and put there.
    ///
    /// # Errors
    ///
    /// Why there is no table. A cache that cannot be read or written is none; the table is built without it.
    pub fn table(&self, file: &File, build_id: Option<&BuildId>) -> Result<Table, Error> {
        let path = self.folder.join(name(&file.metadata()?, build_id));
        let contents = read::contents(file)?;
        let fingerprint = encoding::fingerprint(&contents);
        match load(&path, fingerprint) {
            Ok(Some(table)) => return Ok(table),
            Ok(None) => log::debug!("{} is damaged or of another object", path.display()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => log::debug!("cannot read {}: {error}", path.display()),
        }
        let table = Table::build(&contents)?;
        if let Err(error) = self.store(&path, &encoding::encode(&table, fingerprint)) {
            log::debug!("cannot write {}: {error}", path.display());
        }
        Ok(table)
    }

    /// Replaces the entry at `path` as a whole: who reads it meanwhile sees the old one or the new one.
    fn store(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!(".{}-{number}", std::process::id()));
        // What a process of the same id left when it was killed.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The error that led here says more than one about removing.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

/// What the entry of an object is called.
fn name(file: &fs::Metadata, build_id: Option<&BuildId>) -> String {
    match build_id {
        Some(id) if (1..=MAX_BUILD_ID).contains(&id.0.len()) => format!("{id}-{:x}", file.size()),
        _ => {
            let (device, inode, size) = (file.dev(), file.ino(), file.size());
            format!("{device:x}-{inode:x}-{size:x}-{}.{:09}", file.mtime(), file.mtime_nsec())
        }
    }
}

/// The entry at `path`; `None` where it is damaged or was made of something else.
fn load(path: &Path, fingerprint: u64) -> io::Result<Option<Table>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || metadata.size() > MAX_BYTES {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.size()).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    let table = encoding::decode(&bytes, fingerprint);
    if table.is_some() {
        // By this, what is used is kept. It does not matter whether it works.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(table)
}

/// Removes what has not been used for longest, until there are at most `limit` bytes.
fn prune(folder: &Path, limit: u64) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Ok(metadata) = entry.metadata()
            && metadata.is_file()
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
            // Another memtrace may prune as well.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
