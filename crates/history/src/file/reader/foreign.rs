//! Opening of recordings that another user owns, or has in a directory that another user can change.
//!
//! SQLite opens a write-ahead log and its index for writing, even to read a database. As root, it gives both to the owner of the
//! database, and it truncates the index (`unixOpen`, `unixOpenSharedMemory` and `unixLockSharedMemory`, os_unix.c). It
//! follows no symbolic links, but a hard link can lead to a file of root, and can replace a file after any check. So SQLite
//! opens nothing but the database here, and a log is applied in memory.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rusqlite::Connection;

use super::open::{check_companions, companion, connect_unchanged, in_memory};
use super::write_ahead_log::{HEADER, apply};
use crate::file::error::Error;

/// Number of attempts to read a database and its log while another process writes them.
const ATTEMPTS: u32 = 5;

/// Returns true if the recording belongs to this user or to root, and nobody else can change its directory. `path` is absolute,
/// and has no links.
pub(super) fn is_own(path: &Path) -> io::Result<bool> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let is_own = |metadata: &Metadata| [0, user].contains(&metadata.uid());
    let Some(directory) = path.parent() else { return Ok(false) };
    let directory = fs::metadata(directory)?;
    Ok(is_own(&directory) && directory.mode() & WRITABLE_BY_OTHERS == 0 && is_own(&fs::metadata(path)?))
}

/// Opens the recording, and only reads its log. `most`: maximum size of a database with a log, which is read into memory.
pub(super) fn connect(path: &Path, most: u64) -> Result<Connection, Error> {
    check_companions(path)?;
    for _ in 0..ATTEMPTS {
        let Some(log) = open_log(path)? else { return connect_unchanged(path) };
        let mut beginning = [0; HEADER];
        let length = log.read_at(&mut beginning, 0)?;
        let mut database = read(&open(path)?, most)?;
        let log = read(&log, most)?;
        // If the log has begun anew since, pages of the database can be newer than those of the log.
        if log.starts_with(&beginning[..length]) {
            apply(&mut database, &log)?;
            return in_memory(database);
        }
    }
    Err(Error::InUse)
}

/// Opens the log; returns `None` if there is none, or if it is empty.
fn open_log(path: &Path) -> Result<Option<File>, Error> {
    let log = match open(&companion(path, "-wal")) {
        Err(Error::File(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        log => log?,
    };
    Ok((log.metadata()?.len() > 0).then_some(log))
}

/// Opens a regular file, without following a link at the end of the path.
fn open(path: &Path) -> Result<File, Error> {
    // The open of a pipe would wait for a writer.
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::NotRegular) }
}

fn read(file: &File, most: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = "it is too large for memory, and another user can change its write-ahead log: copy both into a \
                       directory of your own";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message).into());
    }
    Ok(bytes)
}
