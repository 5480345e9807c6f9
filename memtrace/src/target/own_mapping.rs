//! A file mapped by memtrace itself, to see how the kernel names it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;

use crate::model::AbsAddr;

/// The least that can be mapped: a page, of whatever size.
const LENGTH: usize = 1;

/// The first page of a file, mapped as code that nobody runs or reads.
#[derive(Debug)]
pub(super) struct OwnMapping(*mut libc::c_void);

impl OwnMapping {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that is open.
        let start = unsafe { libc::mmap(ptr::null_mut(), LENGTH, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(start)) }
    }

    pub(super) fn start(&self) -> AbsAddr {
        AbsAddr(self.0 as u64)
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, to which nothing refers.
        unsafe { libc::munmap(self.0, LENGTH) };
    }
}
