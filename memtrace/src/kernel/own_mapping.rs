//! A file mapped by memtrace itself, to see how the kernel names it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::ptr;

use crate::model::AbsAddr;

/// The least that can be mapped: a page, of whatever size.
const LENGTH: usize = 1;

/// The first page of a file, mapped while this lives.
#[derive(Debug)]
pub struct OwnMapping(*mut libc::c_void);

impl OwnMapping {
    /// Maps the file at `path`, of which nothing is read.
    ///
    /// # Errors
    ///
    /// What open(2) and mmap(2) say.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that is open.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), LENGTH, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(start)) }
    }

    /// Its first address.
    #[must_use]
    pub fn start(&self) -> AbsAddr {
        AbsAddr(self.0 as u64)
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, to which nothing refers.
        unsafe { libc::munmap(self.0, LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_mapped_as_long_as_the_mapping_lives() {
        let program = std::env::current_exe().unwrap();
        let is_there = |start: AbsAddr| {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let mut lines = maps.lines().filter(|line| line.ends_with(program.to_str().unwrap()));
            lines.any(|line| line.starts_with(&format!("{:x}-", start.0)))
        };
        let mapping = OwnMapping::of(&program).unwrap();
        let start = mapping.start();
        assert!(is_there(start));
        drop(mapping);
        assert!(!is_there(start));
        assert!(OwnMapping::of(Path::new("/no/such/file")).is_err());
    }
}
