//! Reading of recordings, even while they are written.

mod accounts;
mod activity;
mod contents;
mod foreign;
mod locations;
mod memory_over_time;
mod merged_images;
mod open;
mod processes;
mod query;
mod questions;
mod salvage;
mod samples;
#[cfg(test)]
pub(super) mod test_samples;
mod threads;
mod total_rows;
mod totals;
mod write_ahead_log;

use std::path::Path;

use rusqlite::Connection;

use super::error::Error;
use crate::book::Book;
use crate::boundaries::{Boundary, IntervalRow, MarkRow};
use crate::exact_totals::ExactTotals;
use crate::gap::Gap;
use crate::header::Header;

pub use self::threads::{ProcessRow, ThreadRow};

/// Maximum size in bytes of a file that is read into memory: a damaged file, to read the part before the damage, or a file of
/// another user together with its write-ahead log.
const MAX_IN_MEMORY: u64 = 4 << 30;

/// An open recording. It shows the state of the file when it was opened.
#[derive(Debug)]
pub struct Recording {
    connection: Connection,
    header: Header,
    intervals: Vec<IntervalRow>,
    marks: Vec<MarkRow>,
    gaps: Vec<Gap>,
    is_complete: bool,
    is_salvaged: bool,
    exact_totals: Option<ExactTotals>,
}

impl Recording {
    /// Opens a recording. If the file is truncated or damaged, only the intervals before the damage are read.
    ///
    /// # Errors
    ///
    /// The file is no recording, has a newer format, is damaged, or cannot be read.
    #[expect(clippy::disallowed_methods, reason = "the user names the recording")]
    pub fn open(path: &Path) -> Result<Self, Error> {
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(Error::NotRegular);
        }
        if metadata.len() < open::HEADER as u64 {
            return Err(Error::NotDatabase);
        }
        // The log is next to the file itself, not next to a symbolic link.
        let path = &std::fs::canonicalize(path)?;
        let opened = if foreign::is_own(path)? { open::connect(path) } else { foreign::connect(path, MAX_IN_MEMORY) };
        match opened.and_then(Self::read) {
            // `read` closes the file, which releases all locks of this process on it (fcntl(2)). This does no harm,
            // because no SQLite connection to the file is open here.
            Err(Error::Damaged(reason)) if metadata.len() > MAX_IN_MEMORY => Err(Error::Damaged(format!(
                "{reason}; and the part before the damage is not read, because the file has more than 4 GiB"
            ))),
            Err(Error::Damaged(_)) => Self::salvage(std::fs::read(path)?),
            result => result,
        }
    }

    /// Opens a recording that this process writes. A damaged recording is not salvaged, because a salvage opens and
    /// closes the file once more. If a process closes any handle of a file, it loses all its locks on the file,
    /// including SQLite's locks (fcntl(2)).
    ///
    /// # Errors
    ///
    /// The errors of [`Self::open`].
    pub fn open_while_written(path: &Path) -> Result<Self, Error> {
        open::connect(path).and_then(Self::read)
    }

    /// Reads a recording from the contents of its file.
    ///
    /// # Errors
    ///
    /// The file is no recording, has a newer format, or is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        match open::in_memory(bytes.to_vec()).and_then(Self::read) {
            Err(Error::Damaged(_)) => Self::salvage(bytes.to_vec()),
            result => result,
        }
    }

    /// Reads a recording from the contents of its file and of its write-ahead log.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::from_bytes`].
    pub fn from_bytes_and_log(bytes: &[u8], log: &[u8]) -> Result<Self, Error> {
        let mut database = bytes.to_vec();
        write_ahead_log::apply(&mut database, log, MAX_IN_MEMORY)?;
        Self::from_bytes(&database)
    }

    /// Reads the complete intervals of a damaged file.
    fn salvage(bytes: Vec<u8>) -> Result<Self, Error> {
        let connection = open::in_memory(open::whole_pages(bytes)?)?;
        let last = salvage::last_complete_interval(&connection)?;
        let mut recording = Self::read(connection)?;
        recording.intervals.retain(|interval| interval.id <= last);
        recording.marks.retain(|mark| mark.boundary.id <= last);
        let end = recording.end();
        recording.gaps.retain(|gap| gap.span.end <= end.at);
        recording.is_complete = false;
        recording.is_salvaged = true;
        if recording.intervals.is_empty() {
            return Err(Error::Damaged(String::from("no interval is complete")));
        }
        Ok(recording)
    }

    fn read(connection: Connection) -> Result<Self, Error> {
        let (header, is_complete) = contents::header(&connection)?;
        let intervals = contents::intervals(&connection)?;
        let marks = contents::marks(&connection, &intervals)?;
        let gaps = contents::gaps(&connection)?;
        Ok(Self { connection, header, intervals, marks, gaps, is_complete, is_salvaged: false, exact_totals: None })
    }

    /// Returns the boundary that includes the rows of the interval `id`: its end, or the end of the interval that
    /// absorbed it in a merge.
    fn boundary_of(&self, id: i64) -> Boundary {
        let index = self.intervals.partition_point(|interval| interval.id < id);
        self.intervals.get(index).map_or_else(|| self.end(), IntervalRow::end)
    }
}
