//! Perf ring buffer of one CPU, shared with the kernel (perf_event_open(2), "MMAP layout").

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::HEADER_BYTES;

/// Part of `struct perf_event_mmap_page`. By its definition, the positions begin at offset 1 KiB.
#[repr(C)]
struct ControlPage {
    unused: [u8; 1024],
    head: AtomicU64,
    tail: AtomicU64,
}

const _: () = assert!(offset_of!(ControlPage, head) == 1024, "data_head");
const _: () = assert!(offset_of!(ControlPage, tail) == 1032, "data_tail");

/// Ring of one CPU. Dropping it closes the perf event.
#[derive(Debug)]
pub(super) struct Ring {
    view: View,
    mapped: usize,
    /// The perf event lives as long as its descriptor.
    _event: OwnedFd,
}

impl Ring {
    /// Maps a ring of `size` bytes, a power of two, for `event`.
    pub(super) fn map(event: OwnedFd, size: usize) -> io::Result<Self> {
        // SAFETY: the call has no conditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
        // The kernel requires the number of pages to be a power of two.
        let size = size.max(page);
        let mapped = page + size;
        // SAFETY: the kernel chooses the address, so the mapping replaces no memory in use.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                // Writable: the kernel then respects the tail and does not overwrite unread records.
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        // SAFETY: the mapping has this length, and lives until it is dropped with the view.
        let view = unsafe { View::new(base, page, size) };
        Ok(Self { view, mapped, _event: event })
    }

    /// Passes each record in the ring to `record`, and frees the space of the records.
    pub(super) fn drain(&mut self, record: impl FnMut(&[u8])) {
        self.view.drain(record);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping has this base and length, and nothing uses the view after this.
        unsafe { libc::munmap(self.view.control.as_ptr().cast(), self.mapped) };
    }
}

/// The control page, and the data after it.
#[derive(Debug)]
struct View {
    control: NonNull<ControlPage>,
    data: NonNull<u8>,
    size: usize,
    record: Vec<u8>,
}

// SAFETY: nothing else in this process accesses the memory, so any thread may.
unsafe impl Send for View {}

impl View {
    /// # Safety
    ///
    /// `page + size` bytes at `base` must be valid while the view is used, and aligned to 8. Others may write only what
    /// the kernel writes: the head, and the free space of the data.
    unsafe fn new(base: NonNull<u8>, page: usize, size: usize) -> Self {
        // SAFETY: the data begins one page after the base, within the bytes that the caller guarantees.
        let data = unsafe { base.add(page) };
        Self { control: base.cast(), data, size, record: Vec::new() }
    }

    fn drain(&mut self, mut record: impl FnMut(&[u8])) {
        // SAFETY: the control page is valid as `new` requires, and its positions are atomics.
        let control = unsafe { self.control.as_ref() };
        // Pairs with the kernel's barrier between writing data and head (kernel/events/ring_buffer.c,
        // perf_output_put_handle).
        let head = control.head.load(Ordering::Acquire);
        let mut tail = control.tail.load(Ordering::Relaxed);
        let mut bytes = std::mem::take(&mut self.record);
        while tail < head {
            let left = usize::try_from(head - tail).unwrap_or(usize::MAX);
            self.copy(tail, HEADER_BYTES.min(left), &mut bytes);
            let length = bytes.get(6..8).map_or(0, |size| usize::from(u16::from_ne_bytes([size[0], size[1]])));
            if length < HEADER_BYTES || length > left {
                // The rest of the ring cannot be parsed and is skipped. The caller counts this record as malformed.
                record(&bytes);
                tail = head;
                break;
            }
            self.copy(tail, length, &mut bytes);
            record(&bytes);
            tail += length as u64;
        }
        self.record = bytes;
        // After this store, the kernel may overwrite the data.
        control.tail.store(tail, Ordering::Release);
    }

    /// Copies `length` bytes at `position`, which may wrap around the end of the ring.
    fn copy(&self, position: u64, length: usize, into: &mut Vec<u8>) {
        let length = length.min(self.size);
        // The size is a power of two, so truncation by the cast is harmless.
        let start = position as usize & (self.size - 1);
        let first = length.min(self.size - start);
        into.clear();
        into.resize(length, 0);
        // SAFETY: `start` is within the ring.
        let source = unsafe { self.data.add(start) };
        // SAFETY: `first` bytes lie between `start` and the ring's end, and the kernel writes none of them before the
        // tail passes them. `into` has at least `first` bytes.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), into.as_mut_ptr(), first) };
        // SAFETY: `into` has at least `first` bytes.
        let rest = unsafe { into.as_mut_ptr().add(first) };
        // SAFETY: the rest is shorter than the ring, and fits into the rest of `into`.
        unsafe { ptr::copy_nonoverlapping(self.data.as_ptr(), rest, length - first) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const SIZE: usize = 4096;

    /// Ring that a test fills in place of the kernel.
    struct Fake {
        words: Vec<u64>,
        head: u64,
    }

    impl Fake {
        fn new(position: u64) -> Self {
            let mut fake = Self { words: vec![0; (PAGE + SIZE) / 8], head: position };
            fake.words[1024 / 8] = position;
            fake.words[1032 / 8] = position;
            fake
        }

        fn write(&mut self, record: &[u8]) {
            for &byte in record {
                let at = PAGE + (self.head as usize & (SIZE - 1));
                let shift = (at % 8) * 8;
                let word = &mut self.words[at / 8];
                *word = u64::from_le(word.to_le() & !(0xff << shift) | (u64::from(byte) << shift));
                self.head += 1;
            }
            self.words[1024 / 8] = self.head;
        }

        fn drain(&mut self) -> Vec<Vec<u8>> {
            let base = NonNull::new(self.words.as_mut_ptr().cast()).unwrap();
            // SAFETY: the words have this size, and outlive the view.
            let mut view = unsafe { View::new(base, PAGE, SIZE) };
            let mut records = Vec::new();
            view.drain(|bytes| records.push(bytes.to_vec()));
            assert_eq!(self.words[1032 / 8], self.head, "the tail reaches the head");
            records
        }
    }

    fn record(length: u16, fill: u8) -> Vec<u8> {
        let mut bytes = vec![fill; usize::from(length)];
        bytes[6..8].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    #[test]
    fn records_that_wrap_around_the_end_are_read() {
        for distance in 1..=64 {
            let mut fake = Fake::new(5 * SIZE as u64 - distance);
            let records = [record(32, 1), record(40, 2), record(8, 3)];
            records.iter().for_each(|record| fake.write(record));
            assert_eq!(fake.drain(), records);
            assert_eq!(fake.drain(), Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn a_full_ring_is_read_to_the_last_record() {
        let mut fake = Fake::new(8);
        let records: Vec<_> = (0..SIZE / 64).map(|number| record(64, number as u8)).collect();
        records.iter().for_each(|record| fake.write(record));
        assert_eq!(fake.drain(), records);
    }

    #[test]
    fn a_bad_length_ends_the_drain_but_not_the_ring() {
        for length in [0, 7, 500] {
            let mut fake = Fake::new(0);
            let mut bad = record(32, 9);
            bad[6..8].copy_from_slice(&u16::to_ne_bytes(length));
            fake.write(&bad);
            assert_eq!(fake.drain(), [bad[..8].to_vec()]);
            fake.write(&record(16, 1));
            assert_eq!(fake.drain(), [record(16, 1)]);
        }
    }
}
