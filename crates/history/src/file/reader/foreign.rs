//! Opening of recordings that another user can change: as the owner of the file, or in the directory of the file.
//!
//! SQLite opens a write-ahead log and its index for writing, even to read a database. If SQLite runs as root, it gives both
//! files to the owner of the database, and truncates the index (`unixOpen`, `unixOpenSharedMemory` and
//! `unixLockSharedMemory`, os_unix.c). SQLite follows no symbolic links, but a hard link can lead to a file of root, and can
//! replace a file after any check. So SQLite opens only the database here, and a log is applied in memory.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rusqlite::Connection;

use super::open::{check_companions, companion, connect_unchanged, in_memory};
use super::write_ahead_log::{HEADER, apply, too_large};
use crate::file::error::Error;

/// Number of attempts to read a database and its log while another process writes them.
const ATTEMPTS: u32 = 5;

/// Returns true if the recording belongs to this user or to root, and nobody else can change its directory, or replace a
/// directory of its path. `path` is absolute, and has no links.
pub(super) fn is_own(path: &Path) -> io::Result<bool> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    // In a directory with this bit, as in `/tmp`, nobody can rename the files of other users. But everybody can create files
    // there, such as a log.
    const STICKY: u32 = 0o1000;
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let is_own = |metadata: &Metadata| [0, user].contains(&metadata.uid());
    if !is_own(&fs::metadata(path)?) {
        return Ok(false);
    }
    for (index, directory) in path.ancestors().skip(1).enumerate() {
        let directory = fs::metadata(directory)?;
        let is_protected = index > 0 && directory.mode() & STICKY != 0;
        if !is_own(&directory) || directory.mode() & WRITABLE_BY_OTHERS != 0 && !is_protected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens the recording without writing to its log. `most`: maximum size of the database and its log in memory.
pub(super) fn connect(path: &Path, most: u64) -> Result<Connection, Error> {
    check_companions(path)?;
    for _ in 0..ATTEMPTS {
        let Some(log) = open_log(path)? else { return connect_unchanged(path) };
        let beginning = header(&log)?;
        let mut database = read(&open(path)?, most)?;
        let content = read(&log, most.saturating_sub(database.len() as u64))?;
        // If SQLite has restarted the log since, pages of the database can be newer than pages of the log, and the end of
        // the log newer than its beginning. A restart writes the header first, so a changed header shows the restart.
        if content.starts_with(&beginning) && header(&log)? == beginning {
            apply(&mut database, &content, most)?;
            drop(content);
            return in_memory(database);
        }
    }
    Err(Error::InUse)
}

/// Opens the log. Returns `None` if there is no log, or if the log is empty.
fn open_log(path: &Path) -> Result<Option<File>, Error> {
    let log = match open(&companion(path, "-wal")) {
        Err(Error::File(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        log => log?,
    };
    Ok((log.metadata()?.len() > 0).then_some(log))
}

/// Reads the header of a log, or all of a shorter log.
fn header(log: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    let length = log.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Opens a regular file, without following a link at the end of the path.
fn open(path: &Path) -> Result<File, Error> {
    // Without O_NONBLOCK, opening a pipe would wait for a writer.
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::NotRegular) }
}

fn read(file: &File, most: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use harness::Scratch;

    use super::*;

    #[test]
    fn recording_below_a_writable_directory_is_not_own() {
        let scratch = Scratch::in_memory();
        let directory = scratch.subdirectory("directory");
        let path = directory.join("run.memtrace");
        fs::write(&path, b"").unwrap();
        for (outer, inner, expected) in [
            (0o755, 0o755, true),
            (0o1777, 0o755, true),
            (0o777, 0o755, false),
            (0o775, 0o755, false),
            (0o755, 0o775, false),
            (0o755, 0o1777, false),
        ] {
            fs::set_permissions(scratch.path(""), Permissions::from_mode(outer)).unwrap();
            fs::set_permissions(&directory, Permissions::from_mode(inner)).unwrap();
            assert_eq!(is_own(&path).unwrap(), expected, "{outer:o} {inner:o}");
        }
    }

    #[test]
    fn database_and_log_share_the_limit() {
        let scratch = Scratch::in_memory();
        let path = scratch.write("run.memtrace", &[0; 4096]);
        let _ = scratch.write("run.memtrace-wal", &[0; 4096]);
        let is_too_large = |most| matches!(connect(&path, most), Err(Error::File(error)) if error.kind() == io::ErrorKind::FileTooLarge);
        assert!(is_too_large(8191) && !is_too_large(8192));
    }
}
