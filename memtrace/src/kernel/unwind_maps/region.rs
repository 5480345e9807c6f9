//! An array in the kernel, written without a system call.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr::{self, NonNull};

use aya::maps::MapData;

/// A map's array, mapped into this process.
#[derive(Debug)]
pub(super) struct Region<T> {
    /// Programs that are yet to be loaded know it by its descriptor.
    map: MapData,
    first: NonNull<T>,
    entries: usize,
}

// SAFETY: the mapping is reached by this value alone in this process, so it does not matter which thread has it.
unsafe impl<T: Send> Send for Region<T> {}

impl<T: Copy> Region<T> {
    /// Maps the array of `map`, which has `entries` of `T`, each a multiple of 8 bytes or all in one element.
    pub(super) fn new(map: MapData, entries: usize) -> io::Result<Self> {
        let descriptor = map.fd().as_fd().as_raw_fd();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = entries * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice; the kernel refuses one that is longer than the map.
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

    /// Writes `values` from `at` on; `None` where they do not fit.
    pub(super) fn write(&mut self, at: u32, values: &[T]) -> Option<()> {
        let at = at as usize;
        if at > self.entries || values.len() > self.entries - at {
            return None;
        }
        // SAFETY: `at` is inside of the mapping, or right behind its end.
        let place = unsafe { self.first.add(at) };
        // SAFETY: as many entries lie behind `place`, and nobody in this process refers to them.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), place.as_ptr(), values.len()) };
        Some(())
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, which nothing uses after this.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.entries * size_of::<T>()) };
    }
}
