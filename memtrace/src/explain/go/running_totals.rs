//! Reads the totals of Go's runtime in a running process.
//!
//! The runtime changes its totals while they are read. Two equal readings in a row show a state that lasted. If the totals
//! change all the time, the last reading counts. It can contain only a part of one change. A change moves the bytes of one span.

use std::io;
use std::time::Duration;

use memtrace_host::procfs::MemoryReader;
use memtrace_model::{AbsAddr, Bytes, GoTotals};
use memtrace_object::go::{TotalsLocation, TotalsRefusal};

use super::error::GoError;

/// Maximum number of readings. A reading takes some microseconds.
const READINGS: u32 = 64;
/// Time limit of all readings.
const TIME: Duration = Duration::from_secs(1);
/// Size of a word in bytes.
const WORD: usize = 8;

/// Totals in the memory of a process.
#[derive(Clone, Debug)]
pub(super) struct RunningTotals {
    location: TotalsLocation,
    address: AbsAddr,
}

impl RunningTotals {
    /// `address`: address of the totals in the process.
    pub(super) fn new(location: TotalsLocation, address: AbsAddr) -> Self {
        Self { location, address }
    }

    /// Reads the totals. Reads no page that is not resident.
    pub(super) fn read(&self, reader: &MemoryReader) -> Result<GoTotals, GoError> {
        self.check_residence(reader)?;
        let totals = self.clone();
        let read = reader.read_within(TIME, move |fill| settle(|| totals.read_once(fill)));
        read.unwrap_or(Err(GoError::Unreadable))
    }

    fn check_residence(&self, reader: &MemoryReader) -> Result<(), GoError> {
        let page = reader.pages.page().0;
        let end = self.address.0.checked_add(self.length() as u64).and_then(|end| end.checked_next_multiple_of(page));
        let start = AbsAddr(self.address.0 - self.address.0 % page);
        let end = AbsAddr(end.ok_or(GoError::Unreadable)?);
        let residence = reader.pages.residence(start, end).map_err(|_| GoError::Unreadable)?;
        if residence.swapped > 0 {
            return Err(GoError::Swapped);
        }
        let is_resident = residence.resident(start, end).0 == end.0 - start.0;
        if is_resident { Ok(()) } else { Err(GoError::Unreadable) }
    }

    /// Returns the size of the totals in bytes.
    fn length(&self) -> usize {
        self.location.words() * WORD
    }

    fn read_once(&self, fill: &dyn Fn(AbsAddr, &mut [u8]) -> io::Result<usize>) -> Result<GoTotals, ReadingError> {
        let mut bytes = vec![0; self.length()];
        if fill(self.address, &mut bytes)? < bytes.len() {
            return Err(ReadingError::Memory);
        }
        let words: Vec<u64> = bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        self.location.totals(&words).map_err(ReadingError::Totals)
    }
}

/// Reason why a reading has no totals.
#[derive(Debug)]
pub(super) enum ReadingError {
    /// The memory cannot be read.
    Memory,
    /// The totals contradict each other. The next reading can be a better one.
    Totals(TotalsRefusal),
}

impl From<io::Error> for ReadingError {
    fn from(_: io::Error) -> Self {
        Self::Memory
    }
}

/// Reads until two readings in a row are equal, at most [`READINGS`] times. Returns the last totals.
pub(super) fn settle(mut read: impl FnMut() -> Result<GoTotals, ReadingError>) -> Result<GoTotals, GoError> {
    let mut last = Err(GoError::Unreadable);
    for _ in 0..READINGS {
        last = match (read(), last) {
            (Ok(totals), Ok(before)) if are_equal(&totals, &before) => return Ok(totals),
            (Ok(totals), _) => Ok(totals),
            (Err(ReadingError::Memory), _) => return Err(GoError::Unreadable),
            (Err(ReadingError::Totals(refusal)), Err(_)) => Err(refusal.into()),
            // An earlier reading was better.
            (Err(ReadingError::Totals(_)), Ok(before)) => Ok(before),
        };
    }
    last
}

/// Compares totals, apart from the objects: their number changes with each allocation of a large object, and when a processor
/// gets another span.
fn are_equal(one: &GoTotals, other: &GoTotals) -> bool {
    GoTotals { objects: Bytes(0), ..*one } == GoTotals { objects: Bytes(0), ..*other }
}
