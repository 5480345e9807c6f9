//! Reading an object's file: what is needed of it, and no more.

use std::fs::File;
use std::io;

use object::read::ReadCache;

use super::elf::Contents;
use super::error::Error;
use super::table::Table;

/// The table of the object in `file`.
///
/// The file is read, not mapped into memory: one that somebody truncates would otherwise end memtrace with SIGBUS.
///
/// # Errors
///
/// Why there is no table.
pub fn read(file: File) -> Result<Table, Error> {
    let cache = open(file)?;
    Table::build(contents(&cache)?)
}

/// `file`, if it can be read at any place.
pub(super) fn open(file: File) -> Result<ReadCache<File>, Error> {
    if !file.metadata()?.is_file() {
        return Err(Error::Io(io::Error::from(io::ErrorKind::InvalidInput)));
    }
    Ok(ReadCache::new(file))
}

/// What tells how to unwind the object's code.
pub(super) fn contents(cache: &ReadCache<File>) -> Result<Contents<'_>, Error> {
    Contents::find(cache)
}
