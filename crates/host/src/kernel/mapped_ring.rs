//! Ring buffer of a BPF map (`BPF_MAP_TYPE_RINGBUF`), mapped into memtrace once and read in place.
//!
//! `aya::maps::RingBuf` maps the data twice in a row, so that a record that wraps around the end is contiguous. All
//! pages of the mapping are resident from its start (`remap_vmalloc_range_partial`, mm/vmalloc.c), so each ring would
//! count twice in the RSS of memtrace. Here the data is mapped once, and a record that wraps is copied.
//!
//! The kernel's side of the positions and headers is kernel/bpf/ringbuf.c.

use std::io;
use std::mem;
use std::ops::Deref;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::thread;
use std::time::Duration;

use aya::maps::MapData;
use aya_obj::generated::{BPF_RINGBUF_BUSY_BIT, BPF_RINGBUF_DISCARD_BIT, BPF_RINGBUF_HDR_SZ};

use super::error::KernelError;
use crate::procfs;

/// Size of a record's header (`struct bpf_ringbuf_hdr`) in bytes. It begins with the length of the record and two
/// flags.
const HEADER: usize = BPF_RINGBUF_HDR_SZ as usize;

/// Alignment of records in bytes (`__bpf_ringbuf_reserve`).
const ALIGNMENT: usize = 8;

/// Pause while the next record is incomplete.
const INCOMPLETE_PAUSE: Duration = Duration::from_millis(1);

/// Ring of a map. Dropping it unmaps the ring and closes the map.
pub(super) struct MappedRing {
    view: View,
    /// Kept open, because programs that are loaded later refer to the map by its descriptor.
    map: MapData,
    /// The pages that `view` refers to.
    _mappings: [Mapping; 2],
}

impl MappedRing {
    /// Maps the ring of `map`. `action`: verb phrase for the error, such as "read the activity of threads".
    pub(super) fn new(map: MapData, action: &str) -> Result<Self, KernelError> {
        let info = map.info().map_err(|error| KernelError::from_error(action, &error))?;
        Self::map(map, info.max_entries() as usize).map_err(|error| KernelError::from_error(action, &error))
    }

    /// Maps the ring of `map`, which has `size` bytes of data.
    fn map(map: MapData, size: usize) -> io::Result<Self> {
        let page = usize::try_from(procfs::page_size()?.0).map_err(io::Error::other)?;
        let descriptor = map.fd().as_fd().as_raw_fd();
        // The kernel permits writes to this page only, which has the position of the reader (`ringbuf_map_mmap_kern`,
        // before Linux 6.1 `ringbuf_map_mmap`).
        let consumer = Mapping::new(descriptor, 0, page, libc::PROT_READ | libc::PROT_WRITE)?;
        // A page with the position of the writers, and the data. The kernel offers the data twice in a row, and permits
        // a mapping that ends after the first copy (`remap_vmalloc_range_partial`).
        let producer = Mapping::new(descriptor, page, page + size, libc::PROT_READ)?;
        // SAFETY: the mapping is longer than a page.
        let data = unsafe { producer.first.add(page) };
        // SAFETY: the mappings have these parts, begin at pages, and live as long as the view. The size of a ring is a
        // power of two and a multiple of the page size (`ringbuf_map_alloc`).
        let view = unsafe { View::new(consumer.first.cast(), producer.first.cast(), data, size) };
        Ok(Self { view, map, _mappings: [consumer, producer] })
    }

    pub(super) const fn map_data(&self) -> &MapData {
        &self.map
    }

    /// Returns the next record; `None` if there is none, or if it is not complete yet. After `None`, the map's descriptor
    /// becomes readable when a BPF program wakes the reader.
    ///
    /// If the length of a record is impossible, the rest of the ring is skipped and returned as one empty record.
    #[inline]
    pub(super) fn next_record(&mut self) -> Option<RingRecord<'_>> {
        self.view.next_record()
    }

    /// Returns true if the ring has records, including one that is not complete yet.
    pub(super) fn has_unread(&mut self) -> bool {
        self.view.unread().is_some()
    }

    /// Waits until a BPF program wakes the reader, or `timeout` elapses.
    pub(super) fn wait(&mut self, timeout: Duration) {
        // The descriptor is readable as long as a record is incomplete (`ringbuf_map_poll_kern`, kernel/bpf/ringbuf.c). The thread
        // that writes it can be preempted, and would not run on the CPU of a reader that polls without a pause.
        if self.view.find_record().is_none() && self.has_unread() {
            thread::sleep(timeout.min(INCOMPLETE_PAUSE));
            return;
        }
        let mut ready = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        // The caller reads the ring after any outcome.
        // SAFETY: the call gets one initialized pollfd, and the ring keeps its descriptor open.
        let _ = unsafe { libc::poll(&raw mut ready, 1, timeout) };
    }
}

impl AsRawFd for MappedRing {
    fn as_raw_fd(&self) -> RawFd {
        self.map.fd().as_fd().as_raw_fd()
    }
}

/// Pages of a map in the memory of memtrace.
struct Mapping {
    first: NonNull<u8>,
    length: usize,
}

// SAFETY: any thread may use and unmap the pages.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(descriptor: RawFd, offset: usize, length: usize, protection: libc::c_int) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address of the new mapping, and refuses one longer than the map.
        let first = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, descriptor, offset) };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { first, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing uses the mapping of this address and length after this.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.length) };
    }
}

/// Record of a ring. Dropping it frees the space of the record for the kernel.
pub(super) struct RingRecord<'ring> {
    bytes: &'ring [u8],
    consumer: &'ring mut Consumer,
    /// Size of the record with its header and its padding, in bytes.
    space: usize,
}

impl Deref for RingRecord<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for RingRecord<'_> {
    fn drop(&mut self) {
        self.consumer.free(self.space);
    }
}

/// The positions and the data of a ring. A position counts all bytes since the ring was created, and wraps at the
/// maximum of its type.
struct View {
    consumer: Consumer,
    producer: NonNull<AtomicUsize>,
    /// Position of the producer at its last read. It is the end of a record.
    end: usize,
    data: Data,
    /// Copy of a record that wraps around the end of the data.
    wrapped: Vec<u8>,
}

// SAFETY: nothing else in this process accesses the memory, so any thread may.
unsafe impl Send for View {}

/// Size of a record in bytes.
struct Extent {
    length: usize,
    /// Size with the header and the padding.
    space: usize,
}

impl View {
    /// # Safety
    ///
    /// The positions, and `size` bytes at `data`, must be valid while the view is used. `data` must be aligned to 8,
    /// and `size` must be a power of two of at least 8. Others may write only what the kernel writes: the position of
    /// the producer, free space, and records that are not complete.
    unsafe fn new(
        consumer: NonNull<AtomicUsize>,
        producer: NonNull<AtomicUsize>,
        data: NonNull<u8>,
        size: usize,
    ) -> Self {
        // SAFETY: the caller guarantees it.
        let position = unsafe { consumer.as_ref() }.load(Ordering::Relaxed);
        let consumer = Consumer { shared: consumer, position, is_unordered: false };
        Self { consumer, producer, end: position, data: Data { first: data, size }, wrapped: Vec::new() }
    }

    #[inline]
    fn next_record(&mut self) -> Option<RingRecord<'_>> {
        let Extent { length, space } = self.find_record()?;
        let Self { consumer, data, wrapped, .. } = self;
        let start = data.offset(consumer.position.wrapping_add(HEADER));
        let before_end = length.min(data.size - start);
        // SAFETY: the bytes are within the data. They belong to a complete record, which the kernel does not change
        // until the result is dropped and frees it.
        let mut bytes = unsafe { data.bytes(start, before_end) };
        if before_end < length {
            // SAFETY: as above. The record is shorter than the data, so its rest ends before `start`.
            let rest = unsafe { data.bytes(0, length - before_end) };
            wrapped.clear();
            wrapped.extend_from_slice(bytes);
            wrapped.extend_from_slice(rest);
            bytes = wrapped.as_slice();
        }
        Some(RingRecord { bytes, consumer, space })
    }

    /// Returns the size of the next complete record, and frees discarded records before it.
    fn find_record(&mut self) -> Option<Extent> {
        loop {
            let unread = self.unread()?;
            let header = self.data.header(self.consumer.position);
            if header & BPF_RINGBUF_BUSY_BIT != 0 {
                if self.consumer.order() {
                    continue;
                }
                return None;
            }
            let length = (header & !(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT)) as usize;
            let space = (HEADER + length).next_multiple_of(ALIGNMENT);
            // A BPF program never fills more than the ring (`__bpf_ringbuf_reserve`).
            if space > unread || unread > self.data.size {
                return Some(Extent { length: 0, space: unread });
            }
            if header & BPF_RINGBUF_DISCARD_BIT == 0 {
                return Some(Extent { length, space });
            }
            self.consumer.free(space);
        }
    }

    /// Returns the number of bytes from the next record to the end of the last one; `None` if there is no record.
    fn unread(&mut self) -> Option<usize> {
        if self.consumer.position == self.end {
            self.consumer.order();
            // SAFETY: the position is valid, as `new` requires, and is an atomic.
            self.end = unsafe { self.producer.as_ref() }.load(Ordering::Relaxed);
            // The kernel has written the headers of the records before this position. Only relaxed loads are guaranteed
            // to work in read-only memory (std::sync::atomic), so a fence makes the load an acquire load.
            fence(Ordering::Acquire);
        }
        let unread = self.end.wrapping_sub(self.consumer.position);
        (unread > 0).then_some(unread)
    }
}

/// Position of the reader.
struct Consumer {
    shared: NonNull<AtomicUsize>,
    /// Position of the next record.
    position: usize,
    /// True if no fence has followed the last store of the position.
    is_unordered: bool,
}

impl Consumer {
    /// Passes over a record of `space` bytes, with its header and padding.
    fn free(&mut self, space: usize) {
        self.position = self.position.wrapping_add(space);
        // SAFETY: the position is valid, as `View::new` requires, and is an atomic.
        let shared = unsafe { self.shared.as_ref() };
        // All reads of the record come before this store. After it, the kernel may overwrite the record.
        shared.store(self.position, Ordering::Release);
        self.is_unordered = true;
    }

    /// Orders the last store of the position before the reads that follow. Returns false if the store was already ordered.
    ///
    /// A BPF program wakes the reader only if it completes the record at the reader's position (`bpf_ringbuf_commit`).
    /// So before the reader stops, either it reads the completed record, or the program reads the new position.
    fn order(&mut self) -> bool {
        if self.is_unordered {
            fence(Ordering::SeqCst);
        }
        mem::take(&mut self.is_unordered)
    }
}

/// Data of a ring.
#[derive(Clone, Copy)]
struct Data {
    first: NonNull<u8>,
    /// Power of two.
    size: usize,
}

impl Data {
    /// Returns the offset of a position, which is a multiple of the alignment. The header of a record does not wrap: it
    /// is as long as the alignment.
    const fn offset(self, position: usize) -> usize {
        position & (self.size - 1) & !(ALIGNMENT - 1)
    }

    /// Returns the first word of the header at `position`.
    fn header(self, position: usize) -> u32 {
        // SAFETY: the offset is within the data.
        let header = unsafe { self.first.add(self.offset(position)) };
        // SAFETY: the header is within the data, aligned, and an integer, which the kernel accesses atomically.
        let header = unsafe { header.cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed);
        // The kernel has written the record before it cleared the busy bit (`xchg` in `bpf_ringbuf_commit`). The load
        // is relaxed, as in `View::unread`.
        fence(Ordering::Acquire);
        header
    }

    /// Returns the `length` bytes at offset `start`.
    ///
    /// # Safety
    ///
    /// The bytes must be within the data, and nothing may change them while the result is used.
    unsafe fn bytes<'ring>(self, start: usize, length: usize) -> &'ring [u8] {
        // SAFETY: the caller guarantees it.
        let first = unsafe { self.first.add(start) };
        // SAFETY: the caller guarantees it.
        unsafe { slice::from_raw_parts(first.as_ptr(), length) }
    }
}

#[cfg(test)]
mod tests;
