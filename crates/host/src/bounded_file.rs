//! File of a target that is read for a limited time.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::time::Instant;

use memtrace_object::elf::Source;

use crate::procfs::locks;

/// Maximum number of bytes that are read. Files of the largest programs have 1 GiB. Parts of them are read several times.
const MOST: u64 = 8 << 30;

/// File whose reads are refused after a deadline, after a maximum number of bytes, and when memtrace is to end. A hostile file
/// can be sparse, or have tables that lead to the same bytes again and again.
#[derive(Debug)]
pub struct BoundedFile {
    file: File,
    deadline: Instant,
    /// Number of bytes that may still be read.
    left: Cell<u64>,
    refusal: RefCell<Option<io::Error>>,
}

impl BoundedFile {
    pub(crate) fn new(file: File, deadline: Instant) -> Self {
        Self { file, deadline, left: Cell::new(MOST), refusal: RefCell::new(None) }
    }

    /// Returns the file without a limit.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Returns the error of the first refused read. After such an error, the data that was read from the file is incomplete.
    pub(crate) fn into_refusal(self) -> Option<io::Error> {
        self.refusal.into_inner()
    }

    /// Checks that another `length` bytes may be read.
    fn permit(&self, length: u64) -> io::Result<()> {
        if locks::is_stopped() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "memtrace ends"));
        }
        let left = self.left.get().checked_sub(length).filter(|_| Instant::now() < self.deadline);
        self.left.set(left.ok_or_else(late)?);
        Ok(())
    }
}

impl Source for &BoundedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if let Err(error) = self.permit(into.len() as u64) {
            let kind = error.kind();
            self.refusal.borrow_mut().get_or_insert(error);
            return Err(kind.into());
        }
        (&self.file).read_at(offset, into)
    }

    fn size(&self) -> io::Result<u64> {
        (&self.file).size()
    }
}

/// Returns the error of a file that takes too long.
pub(crate) fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it takes too long")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn own(time: Duration) -> BoundedFile {
        BoundedFile::new(File::open("/proc/self/exe").unwrap(), Instant::now() + time)
    }

    #[test]
    fn file_is_read_until_the_deadline() {
        let (file, mut magic) = (own(Duration::from_secs(60)), [0; 4]);
        (&file).read_at(0, &mut magic).unwrap();
        assert_eq!((&magic, (&file).size().unwrap() > 4), (b"\x7fELF", true));
        assert!(file.into_refusal().is_none());
        let late = own(Duration::ZERO);
        assert_eq!((&late).read_at(0, &mut magic).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(late.into_refusal().map(|error| error.to_string()), Some("it takes too long".into()));
    }

    #[test]
    fn bytes_are_limited() {
        let (file, mut magic) = (own(Duration::from_secs(60)), [0; 4]);
        file.left.set(7);
        (&file).read_at(0, &mut magic).unwrap();
        assert_eq!((&file).read_at(0, &mut magic).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // A failed read is no refusal.
        assert!((&own(Duration::from_secs(60))).read_at(u64::MAX >> 1, &mut magic).is_err());
        assert!(file.into_refusal().is_some());
    }
}
