//! Errors of recordings.

use std::io;

use rusqlite::ErrorCode;
use thiserror::Error;

/// Reason for which a recording cannot be created or read. The caller names the file.
#[derive(Debug, Error)]
pub enum Error {
    /// The file could not be opened or created.
    #[error("{0}")]
    File(#[from] io::Error),
    /// Another process records to the file.
    #[error("another process records to this file")]
    InUse,
    /// The file is no regular file.
    #[error("not a regular file")]
    NotRegular,
    /// The file is no SQLite database.
    #[error("not a recording of memtrace: no SQLite database")]
    NotDatabase,
    /// The file is an SQLite database of another program.
    #[error("not a recording of memtrace: a database of another program (application ID {0:#x})")]
    Foreign(i32),
    /// The recording has a newer format.
    #[error("written by a newer version of memtrace: format {found}, this version reads up to {known}")]
    Newer {
        /// Format of the file.
        found: i32,
        /// Newest format that this version reads.
        known: i32,
    },
    /// The recording is damaged and nothing can be recovered.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The recording has no interval, because its writer has just started or was killed then.
    #[error("contains no interval yet")]
    Empty,
    /// Another error of SQLite, such as a lock.
    #[error("cannot be read: {0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Error {
    /// Returns the error that the user can understand: SQLite reports a damaged file in several ways.
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotDatabase,
            // A statement fails if a table or a column is missing. Without a code, a column has another type than the one
            // that the writer uses.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) | None => Self::Damaged(error.to_string()),
            Some(_) => Self::Sqlite(error),
        }
    }
}
