//! Opening of the database, and the check that it is a recording.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use crate::file::error::Error;
use crate::file::schema::{APPLICATION_ID, PAGE_SIZE, VERSION};

/// Maximum time to wait for a lock of the writer. The writer excludes readers only while it completes the file.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Size of the header of a database in bytes (sqlite.org/fileformat.html). SQLite treats a shorter file as an empty
/// database.
pub(super) const HEADER: usize = 100;

/// Maximum length of a value in bytes.
const MAX_VALUE: i32 = 64 << 20;

/// Number of steps of SQLite's virtual machine between two calls of the handler that counts them.
const STEPS: i32 = 1 << 16;

/// Maximum number of steps of all queries of an empty file.
const MAX_STEPS: u64 = 10_000_000_000;
/// Number of further steps for each byte of the file. A report takes less than a hundred for each byte.
const MAX_STEPS_PER_BYTE: u64 = 1000;

/// Flags of all opened files.
const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a file that another process may be writing.
pub(super) fn connect(path: &Path) -> Result<Connection, Error> {
    check_companions(path)?;
    let connection = Connection::open_with_flags(path, FLAGS)?;
    if !has_log(path) {
        check_size(std::fs::metadata(path)?.len())?;
    }
    let size = std::fs::metadata(path)?.len() + log_size(path);
    match check(connection, size) {
        // In a directory without write permission, SQLite cannot create the index of the write-ahead log. Without a
        // log, no index is needed.
        Err(Error::Sqlite(error)) if is_permission(&error) && !has_log(path) => connect_unchanged(path),
        result => result,
    }
}

/// Opens a file that no process writes. SQLite opens no other file.
pub(super) fn connect_unchanged(path: &Path) -> Result<Connection, Error> {
    let size = std::fs::metadata(path)?.len();
    check_size(size)?;
    let connection = Connection::open_with_flags(immutable_uri(path), FLAGS | OpenFlags::SQLITE_OPEN_URI)?;
    check(connection, size)
}

/// Checks that the last page is complete. SQLite reads the missing part as zeros.
fn check_size(size: u64) -> Result<(), Error> {
    if size.is_multiple_of(PAGE_SIZE.into()) {
        return Ok(());
    }
    Err(Error::Damaged(String::from("the last page is incomplete")))
}

fn is_permission(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(error.sqlite_error_code(), Some(CannotOpen | ReadOnly))
}

fn has_log(path: &Path) -> bool {
    log_size(path) > 0
}

/// Returns the size of the write-ahead log in bytes.
fn log_size(path: &Path) -> u64 {
    std::fs::metadata(companion(path, "-wal")).map_or(0, |log| log.len())
}

/// Returns the path of a file that SQLite opens besides the database.
pub(super) fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Refuses companions that are not regular files. SQLite creates only regular files, and would wait for the writer of a
/// pipe.
pub(super) fn check_companions(path: &Path) -> Result<(), Error> {
    for suffix in ["-journal", "-wal", "-shm"] {
        if std::fs::symlink_metadata(companion(path, suffix)).is_ok_and(|file| !file.is_file()) {
            return Err(Error::NotRegular);
        }
    }
    Ok(())
}

/// Returns the URI of a file that does not change (sqlite.org/uri.html).
fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(byte.into());
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    uri + "?immutable=1"
}

/// Opens a database in memory. `bytes`: contents of its file.
pub(super) fn in_memory(mut bytes: Vec<u8>) -> Result<Connection, Error> {
    if bytes.len() < HEADER {
        return Err(Error::NotDatabase);
    }
    check_size(bytes.len() as u64)?;
    // File format versions (sqlite.org/fileformat.html): 2 for a database with a write-ahead log, 1 for one
    // without. A database in memory cannot have a log.
    for version in bytes.get_mut(18..20).into_iter().flatten() {
        if *version == 2 {
            *version = 1;
        }
    }
    let mut connection = Connection::open_in_memory()?;
    connection.deserialize_read_exact(MAIN_DB, bytes.as_slice(), bytes.len(), true)?;
    check(connection, bytes.len() as u64)
}

/// Removes an incomplete page from the end of a file, and sets the number of pages in its header to the actual one.
pub(super) fn whole_pages(mut bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
    let pages = bytes.len() / PAGE_SIZE as usize;
    bytes.truncate(pages * PAGE_SIZE as usize);
    let count = u32::try_from(pages).map_err(|_| Error::Damaged(String::from("larger than any recording")))?;
    match bytes.get_mut(28..32) {
        Some(field) => field.copy_from_slice(&count.to_be_bytes()),
        None => return Err(Error::Damaged(String::from("shorter than a page"))),
    }
    Ok(bytes)
}

/// Starts a read transaction, and checks that the database is a recording.
fn check(mut connection: Connection, size: u64) -> Result<Connection, Error> {
    harden(&mut connection, size)?;
    connection.busy_timeout(TIMEOUT)?;
    // In one transaction, all queries see the same state.
    connection.execute_batch("BEGIN")?;
    check_tables(&connection)?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (id, version) = (number("application_id")?, number("user_version")?);
    if id != APPLICATION_ID {
        return Err(Error::Foreign(id));
    }
    if version > VERSION {
        return Err(Error::Newer { found: version, known: VERSION });
    }
    if version < 1 {
        return Err(Error::Damaged(format!("its format has the number {version}")));
    }
    Ok(connection)
}

/// Refuses tables that a recording does not have: the value of a generated column and the rows of a virtual table are
/// computed when they are read, which can take for ever.
fn check_tables(connection: &Connection) -> Result<(), Error> {
    let computed = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND (sql LIKE 'CREATE VIRTUAL%' \
                    OR EXISTS (SELECT 1 FROM pragma_table_xinfo(sqlite_schema.name) WHERE hidden <> 0))";
    match connection.prepare(computed)?.exists([])? {
        true => Err(Error::Damaged(String::from("a table has computed values"))),
        false => Ok(()),
    }
}

/// Protects against a file of somebody else (sqlite.org/security.html): a view in the place of a table could run for ever,
/// and a value could fill the memory. `size`: size of the file in bytes.
fn harden(connection: &mut Connection, size: u64) -> Result<(), Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    for unused in [
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
        DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
    ] {
        connection.set_db_config(unused, false)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE)?;
    limit_steps(connection, MAX_STEPS.saturating_add(size.saturating_mul(MAX_STEPS_PER_BYTE)))
}

fn limit_steps(connection: &mut Connection, most: u64) -> Result<(), Error> {
    let mut left = most;
    let interrupts = move || {
        left = left.saturating_sub(STEPS as u64);
        left == 0
    };
    connection.progress_handler(STEPS, Some(interrupts))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

    #[test]
    fn endless_query_is_too_many_steps() {
        let mut connection = Connection::open_in_memory().unwrap();
        limit_steps(&mut connection, 1_000_000).unwrap();
        let counted: Result<i64, _> = connection.query_row(ENDLESS, [], |row| row.get(0));
        let error = Error::from(counted.unwrap_err());
        assert!(matches!(&error, Error::Damaged(message) if message == "reading it takes too many steps"), "{error:?}");
    }

    #[test]
    fn foreign_files_run_no_code() {
        let mut connection = Connection::open_in_memory().unwrap();
        harden(&mut connection, 0).unwrap();
        assert!(connection.db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE).unwrap());
        for unused in [
            DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
            DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
            DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
        ] {
            assert!(!connection.db_config(unused).unwrap());
        }
    }
}
