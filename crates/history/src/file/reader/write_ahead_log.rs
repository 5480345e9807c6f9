//! Write-ahead log of a database (sqlite.org/fileformat.html#walformat), applied to the database in memory.

use std::io;

use crate::file::error::Error;
use crate::file::schema::PAGE_SIZE;

/// Size of the header of a log in bytes.
pub(super) const HEADER: usize = 32;
/// Size of the header of a frame in bytes.
const FRAME_HEADER: usize = 24;

const PAGE: usize = PAGE_SIZE as usize;

/// First number of a log with checksums of little-endian numbers. memtrace runs on little-endian processors only.
const MAGIC: u32 = 0x377f_0682;

/// Version of the format.
const VERSION: u32 = 3_007_000;

/// Copies the pages of all complete transactions of a log into the database. As in SQLite, a log with a damaged header has no
/// transaction, and a log ends at the first damaged frame. `most`: maximum size of the database in bytes.
pub(super) fn apply(database: &mut Vec<u8>, log: &[u8], most: u64) -> Result<(), Error> {
    let Some((header, frames)) = log.split_first_chunk::<HEADER>() else { return Ok(()) };
    let mut sum = Checksum::default();
    sum.add(&header[..24]);
    if number(header, 0) != MAGIC || sum != Checksum::at(header, 24) {
        return Ok(());
    }
    if number(header, 4) != VERSION || number(header, 8) != PAGE_SIZE {
        return Err(Error::Damaged(String::from("its write-ahead log has another format")));
    }
    // Pages that a transaction has allocated and freed are in no frame, so the size can exceed both files together.
    let plausible = 2 * (database.len() + log.len());
    let (mut size, mut transaction) = (database.len(), Vec::new());
    for frame in frames.chunks_exact(FRAME_HEADER + PAGE) {
        let (head, page) = frame.split_at(FRAME_HEADER);
        sum.add(&head[..8]);
        sum.add(page);
        let end = number(head, 0) as usize * PAGE;
        if head[8..16] != header[16..24] || sum != Checksum::at(head, 16) || end == 0 {
            break;
        }
        transaction.push((end, page));
        let pages = number(head, 4) as usize;
        // Only the last frame of a transaction contains the number of pages that the database has after the
        // transaction.
        if pages == 0 {
            continue;
        }
        size = pages * PAGE;
        for (end, page) in transaction.drain(..) {
            if size.max(end) > plausible {
                return Err(Error::Damaged(String::from("its write-ahead log has pages far beyond the file")));
            }
            if size.max(end) as u64 > most {
                return Err(too_large());
            }
            if database.len() < end {
                database.resize(end, 0);
            }
            database[end - PAGE..end].copy_from_slice(page);
        }
    }
    database.resize(size, 0);
    Ok(())
}

/// Returns the error for a database and a log that need too much memory.
pub(super) fn too_large() -> Error {
    let message = "it is too large for memory, and another user can change its write-ahead log: copy both into a \
                   directory of your own";
    io::Error::new(io::ErrorKind::FileTooLarge, message).into()
}

/// Returns the big-endian number at an offset.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Checksum of a log up to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Checksum([u32; 2]);

impl Checksum {
    /// Reads the checksum at an offset.
    fn at(bytes: &[u8], at: usize) -> Self {
        Self([number(bytes, at), number(bytes, at + 4)])
    }

    /// Adds bytes in pairs of numbers.
    fn add(&mut self, bytes: &[u8]) {
        let Self([first, second]) = self;
        for pair in bytes.chunks_exact(8) {
            // `number` reads big-endian numbers.
            *first = first.wrapping_add(number(pair, 0).swap_bytes()).wrapping_add(*second);
            *second = second.wrapping_add(number(pair, 4).swap_bytes()).wrapping_add(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::Scratch;
    use rusqlite::{Connection, MAIN_DB};

    use super::*;

    /// Number of transactions.
    const COUNT: i64 = 30;

    /// Returns a database with a table, its log, and the sizes of the log after each of [`COUNT`] transactions, which add a
    /// row of some pages each.
    fn with_log() -> (Vec<u8>, Vec<u8>, Vec<usize>) {
        let directory = Scratch::in_memory();
        let path = directory.path("database");
        let log = || std::fs::read(directory.path("database-wal")).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "page_size", PAGE_SIZE).unwrap();
        connection.execute_batch("CREATE TABLE texts (text TEXT)").unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        let sizes = (0..COUNT).map(|index| {
            connection.execute("INSERT INTO texts VALUES (hex(zeroblob(?)))", [index * 700]).unwrap();
            log().len()
        });
        let sizes = sizes.collect();
        (std::fs::read(&path).unwrap(), log(), sizes)
    }

    /// Returns the number of rows of an intact database.
    fn rows(mut database: Vec<u8>) -> usize {
        // A database in memory has no log.
        database[18..20].fill(1);
        let mut connection = Connection::open_in_memory().unwrap();
        connection.deserialize_read_exact(MAIN_DB, database.as_slice(), database.len(), true).unwrap();
        let text = |sql| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(text("PRAGMA integrity_check"), "ok");
        text("SELECT CAST(count(*) AS TEXT) FROM texts").parse().unwrap()
    }

    fn rows_with(database: &[u8], log: &[u8]) -> usize {
        let mut database = database.to_vec();
        apply(&mut database, log, u64::MAX).unwrap();
        rows(database)
    }

    #[test]
    fn each_prefix_of_a_log_is_an_earlier_state() {
        let (database, log, sizes) = with_log();
        assert_eq!(sizes.last(), Some(&log.len()), "no checkpoint");
        for length in (0..log.len()).step_by(9973).chain(sizes.iter().flat_map(|&size| [size - 1, size])) {
            let complete = sizes.iter().filter(|&&size| size <= length).count();
            assert_eq!(rows_with(&database, &log[..length]), complete, "{length}");
        }
    }

    #[test]
    fn log_ends_at_the_first_damaged_frame() {
        let (database, log, sizes) = with_log();
        for at in (0..log.len()).step_by(2777) {
            let mut damaged = log.clone();
            damaged[at] ^= 1;
            // Each transaction needs all frames up to its size. Without a header, no transaction is complete.
            let complete = if at < HEADER { 0 } else { sizes.iter().filter(|&&size| size <= at).count() };
            assert_eq!(rows_with(&database, &damaged), complete, "{at}");
        }
    }

    #[test]
    fn log_of_a_huge_database_is_refused() {
        let (mut database, log, _) = with_log();
        let mut changed = log[..HEADER + FRAME_HEADER + PAGE].to_vec();
        changed[HEADER..HEADER + 8].fill(0xff);
        let mut sum = Checksum::default();
        sum.add(&changed[..24]);
        sum.add(&changed[HEADER..HEADER + 8]);
        sum.add(&changed[HEADER + FRAME_HEADER..]);
        for (number, at) in sum.0.into_iter().zip([16, 20]) {
            changed[HEADER + at..HEADER + at + 4].copy_from_slice(&number.to_be_bytes());
        }
        assert!(matches!(apply(&mut database, &changed, u64::MAX), Err(Error::Damaged(_))));
        // With another salt, the frame belongs to an older log.
        changed[HEADER + 8] ^= 1;
        assert_eq!(rows_with(&database, &changed), 0);
    }

    #[test]
    fn log_that_exceeds_the_limit_is_refused() {
        let (database, log, _) = with_log();
        let mut whole = database.clone();
        apply(&mut whole, &log, u64::MAX).unwrap();
        let size = whole.len() as u64;
        assert!(size > database.len() as u64);
        assert!(apply(&mut database.clone(), &log, size).is_ok());
        assert!(matches!(apply(&mut database.clone(), &log, size - 1), Err(Error::File(_))));
    }
}
