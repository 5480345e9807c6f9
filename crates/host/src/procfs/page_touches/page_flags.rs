//! Reader of `/proc/kpageflags`: flags of the page frames (Documentation/admin-guide/mm/pagemap.rst).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::procfs::kernel_files;

/// The page is on an LRU list (`KPF_LRU`, include/uapi/linux/kernel-page-flags.h).
pub(super) const LRU: u64 = 1 << 5;
/// A process has mapped the page (`KPF_MMAP`).
pub(super) const MAPPED: u64 = 1 << 11;
/// The page is anonymous memory (`KPF_ANON`).
pub(super) const ANONYMOUS: u64 = 1 << 12;
/// The frame is the first one of a large folio (`KPF_COMPOUND_HEAD`).
pub(super) const COMPOUND_HEAD: u64 = 1 << 15;
/// The frame is another one of a large folio (`KPF_COMPOUND_TAIL`).
pub(super) const COMPOUND_TAIL: u64 = 1 << 16;
/// The page is locked in memory (`KPF_MLOCKED`, include/linux/kernel-page-flags.h).
pub(super) const MLOCKED: u64 = 1 << 33;

const ENTRY: usize = 8;

/// Number of a page frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Frame(pub(super) u64);

/// Flags of the page frames.
#[derive(Debug)]
pub struct PageFlags {
    file: File,
}

impl PageFlags {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { file: kernel_files::open("/proc/kpageflags")? })
    }

    /// Returns the flags of `frames`, which are in ascending order; 0 for frames without memory.
    pub(super) fn of(&self, frames: &[Frame]) -> io::Result<Vec<u64>> {
        let mut flags = Vec::with_capacity(frames.len());
        let mut bytes = Vec::new();
        for run in frames.chunk_by(|one, other| other.0 <= one.0 + 1) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let count = usize::try_from(last.0 - first.0 + 1).map_err(io::Error::other)?;
            let of_run: Vec<u64> = self.run(*first, count, &mut bytes)?.collect();
            flags.extend(run.iter().map(|frame| of_run[(frame.0 - first.0) as usize]));
        }
        Ok(flags)
    }

    /// Returns the flags of contiguous frames.
    fn run<'bytes>(
        &self,
        first: Frame,
        count: usize,
        bytes: &'bytes mut Vec<u8>,
    ) -> io::Result<impl Iterator<Item = u64> + use<'bytes>> {
        bytes.clear();
        bytes.resize(count * ENTRY, 0);
        let mut filled = 0;
        // The file ends after the last frame.
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], first.0 * ENTRY as u64 + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(bytes.as_chunks::<ENTRY>().0.iter().map(|entry| u64::from_ne_bytes(*entry)))
    }
}
