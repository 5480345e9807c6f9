//! Memory-mapped BPF array, which is written without system calls.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr::{self, NonNull};

use aya::maps::MapData;

/// BPF array, mapped into memtrace.
#[derive(Debug)]
pub(super) struct Region<T> {
    /// Kept open, because programs that are loaded later refer to the map by its descriptor.
    map: MapData,
    first: NonNull<T>,
    entries: usize,
}

// SAFETY: only this value accesses the mapping in this process, so any thread may own it.
unsafe impl<T: Send> Send for Region<T> {}

impl<T: Copy> Region<T> {
    /// Maps the array of `map` with `entries` values of `T`. The size of `T` is a multiple of 8 bytes, or a single
    /// element of the array has all values.
    pub(super) fn new(map: MapData, entries: usize) -> io::Result<Self> {
        let descriptor = map.fd().as_fd().as_raw_fd();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = entries * size_of::<T>();
        // SAFETY: the kernel chooses the address of the new mapping, and refuses one longer than the map.
        let first = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, descriptor, 0) };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { map, first, entries })
    }

    pub(super) fn map(&self) -> &MapData {
        &self.map
    }

    /// Returns the value at `index`.
    pub(super) fn get(&self, index: u32) -> Option<T> {
        let index = index as usize;
        if index >= self.entries {
            return None;
        }
        // SAFETY: `index` is within the mapping.
        let value = unsafe { self.first.add(index) };
        // SAFETY: the value is initialized, and only this value writes to it.
        Some(unsafe { value.read() })
    }

    /// Returns all values; `None` if their number is not `N`.
    pub(super) fn as_array<const N: usize>(&self) -> Option<&[T; N]> {
        // SAFETY: the mapping has as many entries, lives as long as the reference, and only this value writes to it.
        (self.entries == N).then(|| unsafe { self.first.cast().as_ref() })
    }

    /// Writes `values` from index `start` on; `None` if they do not fit.
    pub(super) fn write(&mut self, start: u32, values: &[T]) -> Option<()> {
        let start = start as usize;
        if start > self.entries || values.len() > self.entries - start {
            return None;
        }
        // SAFETY: `start` is within the mapping or at its end.
        let destination = unsafe { self.first.add(start) };
        // SAFETY: the mapping has as many entries from `destination` on, and nothing in this process refers to them.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), destination.as_ptr(), values.len()) };
        Some(())
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: nothing uses the mapping of this address and length after this.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.entries * size_of::<T>()) };
    }
}
