//! Readers of another process's memory. They do not stop the process. [`MemoryView`] reads resident pages only, and
//! faults no page in.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_model::{AbsAddr, Bytes, Pid};

use crate::procfs::image_memory::ImageMemory;
use crate::procfs::locks;
use crate::procfs::pagemap::{PageMap, ResidentPages};
use crate::procfs::remote_words::RemoteWords;

/// Size of the two words of a pair, in bytes.
const PAIR: u64 = 16;

/// Maximum size of a read.
const WINDOW: Bytes = Bytes(1 << 20);

/// Reader of a process's memory.
#[derive(Debug)]
pub struct MemoryReader {
    memory: ImageMemory,
    pub pages: PageMap,
    /// Time after which nothing is read.
    deadline: Option<Instant>,
}

impl MemoryReader {
    /// Opens the memory of a process. After `deadline`, nothing is read.
    ///
    /// # Errors
    ///
    /// Permission is missing: this needs the same permission as ptrace(2).
    pub fn open(pid: Pid, deadline: Option<Instant>) -> io::Result<Self> {
        Ok(Self { memory: ImageMemory::open(pid)?, pages: PageMap::open(pid)?, deadline })
    }

    /// Returns true if the deadline is over. Then all memory is unreadable.
    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Reads two words at each of `places`; `None` for unreadable places.
    ///
    /// process_vm_readv(2) takes many places at once, but it gives the process a copy of each page that it shares with a parent
    /// or child since a fork (`gup_must_unshare`, mm/internal.h): the machine would need more memory than before. So
    /// process_vm_readv(2) reads only pages that a single process has mapped. The other pages are read through `/proc/PID/mem`.
    pub fn pairs(&self, places: &[AbsAddr]) -> Vec<Option<[u64; 2]>> {
        let (pid, places) = (self.memory.pid(), places.to_vec());
        let count = places.len();
        if self.is_late() {
            return vec![None; count];
        }
        let (memory, pages) = (Arc::clone(self.memory.file()), self.pages.clone());
        let read = move || {
            let is_mapped_once = pages.are_mapped_once(&places, PAIR)?;
            let at_once = places.iter().zip(&is_mapped_once).filter(|(_, once)| **once).map(|(place, _)| *place);
            let mut quick = Vec::with_capacity(places.len());
            RemoteWords::default().read(pid, &at_once.collect::<Vec<_>>(), &mut quick)?;
            let mut quick = quick.into_iter();
            let pair = |(place, once): (&AbsAddr, bool)| if once { quick.next()? } else { pair_at(&memory, *place) };
            Ok(places.iter().zip(is_mapped_once).map(pair).collect())
        };
        // After an error, no place can be read: the process has ended, or holds a lock.
        locks::read(pid, read).unwrap_or_else(|_| vec![None; count])
    }

    /// Lets `work` read the memory several times in short intervals. `work` gets a function that fills bytes from an address on, up
    /// to the first page that cannot be read, and returns their number. It can fault pages in. After `time`, nothing more is read.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if the process holds a lock of its memory.
    pub fn read_within<T: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce(&dyn Fn(AbsAddr, &mut [u8]) -> io::Result<usize>) -> T + Send + 'static,
    ) -> io::Result<T> {
        self.memory.read_within(time, move |memory| work(&|address, bytes| memory.read_some(address, bytes)))
    }

    /// Creates a view of the pages from `start` to `end` that are resident now.
    pub fn view(&self, start: AbsAddr, end: AbsAddr) -> io::Result<MemoryView<'_>> {
        let residence = self.pages.residence(start, end)?;
        Ok(MemoryView { reader: self, residence, buffer: Vec::new(), at: AbsAddr(0) })
    }
}

fn pair_at(memory: &File, place: AbsAddr) -> Option<[u64; 2]> {
    let mut words = [[0; 8]; 2];
    memory.read_exact_at(words.as_flattened_mut(), place.0).ok()?;
    Some(words.map(u64::from_ne_bytes))
}

/// Memory that can be read word by word.
pub trait WordReader {
    /// Returns the word at `address`, which is a multiple of 8; `None` if it is not resident or not readable.
    fn word(&mut self, address: AbsAddr) -> Option<u64>;

    /// Returns the number of resident bytes from `start` to `end`.
    fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes;

    /// Returns the page size.
    fn page(&self) -> Bytes;
}

/// Buffered view of the resident pages in an address range of a process.
#[derive(Debug)]
pub struct MemoryView<'peek> {
    reader: &'peek MemoryReader,
    pub residence: ResidentPages,
    buffer: Vec<u8>,
    /// Address of `buffer` in the process.
    at: AbsAddr,
}

impl MemoryView<'_> {
    fn buffered(&self, address: AbsAddr) -> Option<u64> {
        let offset = usize::try_from(address.0.checked_sub(self.at.0)?).ok()?;
        let word = self.buffer.get(offset..offset.checked_add(8)?)?;
        word.try_into().map(u64::from_ne_bytes).ok()
    }

    /// Fills the buffer from the page of `address` up to the next page that is not resident, with at most `most` bytes.
    fn fill_buffer(&mut self, address: AbsAddr, most: Bytes) -> Option<()> {
        if self.reader.is_late() {
            return None;
        }
        let run = self.residence.run(address, most);
        let page = self.residence.page_start(address)?;
        let length = usize::try_from(run.0).ok()?;
        let (memory, mut buffer) = (Arc::clone(self.reader.memory.file()), std::mem::take(&mut self.buffer));
        // The kernel takes the lock of the memory map (`mem_rw`, fs/proc/base.c).
        let read = move || {
            buffer.resize(length, 0);
            let read = memory.read_at(&mut buffer, page.0)?;
            buffer.truncate(read);
            Ok(buffer)
        };
        self.at = page;
        self.buffer = locks::read(self.reader.memory.pid(), read).unwrap_or_default();
        Some(())
    }
}

impl WordReader for MemoryView<'_> {
    fn word(&mut self, address: AbsAddr) -> Option<u64> {
        if let Some(word) = self.buffered(address) {
            return Some(word);
        }
        self.fill_buffer(address, WINDOW)?;
        self.buffered(address)
    }

    fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes {
        self.residence.resident(start, end)
    }

    fn page(&self) -> Bytes {
        self.reader.pages.page()
    }
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Anonymous;

    use super::*;

    #[test]
    fn only_resident_pages_are_read() {
        const PAGES: u64 = 600;
        let page = super::super::pagemap::page_size().unwrap().0;
        let memory = Anonymous::new(PAGES * page);
        let (start, end) = (memory.start(), AbsAddr(memory.start().0 + PAGES * page));
        // More than a window without a gap, and pages after gaps.
        for touched in (0..300).chain([302, 599]) {
            memory.touch(touched * page + 16);
        }
        let peek = MemoryReader::open(Pid(std::process::id()), None).unwrap();
        let mut view = peek.view(start, end).unwrap();
        for touched in (0..300).chain([302, 599]).rev() {
            let address = AbsAddr(start.0 + touched * page + 16);
            assert_eq!(view.word(address), Some(1), "page {touched}");
        }
        for absent in [300, 301, 303, 598] {
            let address = AbsAddr(start.0 + absent * page);
            assert_eq!(view.word(address), None, "page {absent}");
        }
        assert_eq!(view.word(end), None);
        let late = MemoryReader::open(Pid(std::process::id()), Some(Instant::now())).unwrap();
        assert_eq!((late.view(start, end).unwrap().word(start), late.pairs(&[start])), (None, vec![None]));
        // Reading faulted no page in.
        let residence = peek.pages.residence(start, end).unwrap();
        assert_eq!(residence.resident(start, end), Bytes(302 * page));
    }
}
