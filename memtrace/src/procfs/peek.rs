//! Reading another process' memory, without stopping it and without bringing a page in.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::model::{AbsAddr, Bytes, Pid};
use crate::procfs::page_map::{PageMap, Residence};
use crate::procfs::process::proc_path;

/// So much is read at once.
const WINDOW: Bytes = Bytes(1 << 20);
/// So many places can be read by one call (`UIO_MAXIOV`, include/uapi/linux/uio.h).
const AT_ONCE: usize = 1024;

/// A process that can be looked into.
#[derive(Debug)]
pub(crate) struct Peek {
    pid: Pid,
    memory: File,
    pub(crate) pages: PageMap,
}

impl Peek {
    /// # Errors
    ///
    /// Where that is not permitted: it takes what ptrace(2) takes, though nothing is traced.
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, memory: File::open(proc_path(pid, "mem"))?, pages: PageMap::open(pid)? })
    }

    /// The two words at each of `places`; `None` where they cannot be read. Few calls of the kernel, however many they
    /// are.
    pub(crate) fn pairs(&self, places: &[AbsAddr]) -> Vec<Option<[u64; 2]>> {
        let mut found = Vec::with_capacity(places.len());
        while let Some(rest) = places.get(found.len()..).filter(|rest| !rest.is_empty()) {
            let asked = &rest[..rest.len().min(AT_ONCE)];
            let read = self.read_pairs(asked);
            let came = read.len();
            found.extend(read.into_iter().map(Some));
            // The first that did not come cannot be read; those behind it are asked for anew.
            if came < asked.len() {
                found.push(None);
            }
        }
        found
    }

    /// The pairs up to the first that cannot be read.
    fn read_pairs(&self, places: &[AbsAddr]) -> Vec<[u64; 2]> {
        const PAIR: usize = size_of::<[u64; 2]>();
        let mut pairs = vec![[0u64; 2]; places.len()];
        let local = libc::iovec { iov_base: pairs.as_mut_ptr().cast(), iov_len: places.len() * PAIR };
        let remote: Vec<_> = places
            .iter()
            .map(|place| libc::iovec { iov_base: std::ptr::without_provenance_mut(place.0 as usize), iov_len: PAIR })
            .collect();
        // SAFETY: the local range is `pairs`, as long as all that is asked for; the others are addresses of another
        // process, which the kernel checks.
        let read = unsafe {
            libc::process_vm_readv(
                self.pid.0.cast_signed(),
                &raw const local,
                1,
                remote.as_ptr(),
                remote.len() as u64,
                0,
            )
        };
        pairs.truncate(usize::try_from(read).unwrap_or(0) / PAIR);
        pairs
    }

    /// A view of the pages from `start` to `end` that are resident now.
    pub(crate) fn view(&self, start: AbsAddr, end: AbsAddr) -> io::Result<View<'_>> {
        let residence = self.pages.residence(start, end)?;
        Ok(View { memory: &self.memory, residence, buffer: Vec::new(), at: AbsAddr(0) })
    }
}

/// What can be read word by word.
pub(crate) trait Words {
    /// The word at `address`, which is a multiple of 8; `None` where it is not resident or not readable.
    fn word(&mut self, address: AbsAddr) -> Option<u64>;

    /// How many bytes from `start` to `end` are resident.
    fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes;
}

/// A range of a process' memory, of which only resident pages are read, in large pieces.
#[derive(Debug)]
pub(crate) struct View<'peek> {
    memory: &'peek File,
    pub(crate) residence: Residence,
    buffer: Vec<u8>,
    /// Where `buffer` lies in the process.
    at: AbsAddr,
}

impl View<'_> {
    fn buffered(&self, address: AbsAddr) -> Option<u64> {
        let offset = usize::try_from(address.0.checked_sub(self.at.0)?).ok()?;
        let word = self.buffer.get(offset..offset.checked_add(8)?)?;
        word.try_into().map(u64::from_ne_bytes).ok()
    }

    /// Reads on from the page of `address`, as far as pages are resident.
    fn read_on(&mut self, address: AbsAddr, most: Bytes) -> Option<()> {
        self.buffer.clear();
        let run = self.residence.run(address, most);
        let page = self.residence.page_start(address)?;
        self.buffer.resize(usize::try_from(run.0).ok()?, 0);
        self.at = page;
        let read = self.memory.read_at(&mut self.buffer, page.0).unwrap_or(0);
        self.buffer.truncate(read);
        Some(())
    }
}

impl Words for View<'_> {
    fn word(&mut self, address: AbsAddr) -> Option<u64> {
        if let Some(word) = self.buffered(address) {
            return Some(word);
        }
        self.read_on(address, WINDOW)?;
        self.buffered(address)
    }

    fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes {
        self.residence.resident(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Anonymous;

    #[test]
    fn what_is_resident_is_read_and_what_is_not_stays_away() {
        const PAGES: u64 = 600;
        let page = super::super::page_map::page_size().unwrap().0;
        let memory = Anonymous::new(PAGES * page);
        let (start, end) = (memory.start(), AbsAddr(memory.start().0 + PAGES * page));
        // More than a window without a gap, and pages behind gaps.
        for touched in (0..300).chain([302, 599]) {
            memory.touch(touched * page + 16);
        }
        let peek = Peek::open(Pid(std::process::id())).unwrap();
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
        // Nothing was brought in by looking.
        let residence = peek.pages.residence(start, end).unwrap();
        assert_eq!(residence.resident(start, end), Bytes(302 * page));
    }

    #[test]
    fn pairs_are_read_around_what_cannot_be_read() {
        let memory = Anonymous::new(4096);
        memory.write(0, 7);
        memory.write(8, 8);
        let (here, nowhere) = (memory.start(), AbsAddr(8));
        let peek = Peek::open(Pid(std::process::id())).unwrap();
        assert_eq!(
            peek.pairs(&[nowhere, here, nowhere, nowhere, here]),
            [None, Some([7, 8]), None, None, Some([7, 8])]
        );
        assert_eq!(peek.pairs(&vec![here; 3000]), vec![Some([7, 8]); 3000]);
        assert_eq!(peek.pairs(&[]), []);
    }
}
