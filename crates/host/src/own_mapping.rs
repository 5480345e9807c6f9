//! Mapping of a file for a lookup by the BPF programs, which see the file as the kernel does.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;

use memtrace_model::AbsAddr;

/// Length of the mapping in bytes. The kernel rounds it up to a page.
const LENGTH: usize = 1;

/// Mapping of the first page of a file in this process. Dropping this value unmaps the page.
#[derive(Debug)]
pub(crate) struct OwnMapping(*mut libc::c_void);

impl OwnMapping {
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address of the new mapping.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), LENGTH, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(start)) }
    }

    /// Returns the first address of the mapping.
    pub(crate) fn start(&self) -> AbsAddr {
        AbsAddr(self.0 as u64)
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping of this address and length.
        unsafe { libc::munmap(self.0, LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_mapped_until_the_mapping_is_dropped() {
        let program = std::env::current_exe().unwrap();
        let is_mapped = |start: AbsAddr| {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let mut lines = maps.lines().filter(|line| line.ends_with(program.to_str().unwrap()));
            lines.any(|line| line.starts_with(&format!("{:x}-", start.0)))
        };
        let mapping = OwnMapping::new(&File::open(&program).unwrap()).unwrap();
        let start = mapping.start();
        assert!(is_mapped(start));
        drop(mapping);
        assert!(!is_mapped(start));
    }
}
