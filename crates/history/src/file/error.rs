//! Errors of recordings.

use std::io;

use rusqlite::ErrorCode;
use thiserror::Error;

/// Error while a recording is created or read. The caller adds the name of the file to the message.
#[derive(Debug, Error)]
pub enum Error {
    /// An operation on the file failed, for example opening it.
    #[error("{0}")]
    File(#[from] io::Error),
    /// Another process writes a recording to the file.
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
        /// Format number of the file.
        found: i32,
        /// Highest format number that this version reads.
        known: i32,
    },
    /// The recording is damaged and nothing can be recovered.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The recording has no interval: its writer has just started, or was killed before the end of the first
    /// interval.
    #[error("contains no interval yet")]
    Empty,
    /// Another error of SQLite, such as a lock.
    #[error("cannot be read: {0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Error {
    /// Converts an error of SQLite. Several of SQLite's error codes stand for a damaged recording.
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotDatabase,
            // `Unknown`: a statement names a table or column that is missing. No code: a column has another type
            // than the writer uses.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) | None => Self::Damaged(error.to_string()),
            Some(ErrorCode::TooBig) => Self::Damaged(String::from("a value is longer than in any recording")),
            Some(ErrorCode::OperationInterrupted) => Self::Damaged(String::from("reading it takes too many steps")),
            Some(_) => Self::Sqlite(error),
        }
    }
}
