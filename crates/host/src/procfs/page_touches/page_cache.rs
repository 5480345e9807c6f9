//! Pages of files that no process has mapped, by control group.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use memtrace_model::CgroupId;
use rustc_hash::FxHashSet;

use super::idle_bitmap::IdleBitmap;
use super::page_flags::{ANONYMOUS, COMPOUND_TAIL, Frame, LRU, MAPPED, PageFlags};
use crate::procfs::kernel_files;

/// Number of frames that are read at once.
const AT_ONCE: usize = 1 << 16;
const ENTRY: usize = 8;

/// Finds the frames of control groups: `/proc/kpagecgroup` has the inode of the group that each frame is charged to.
#[derive(Debug)]
pub(super) struct PageCache {
    groups: FxHashSet<u64>,
    charges: File,
}

impl PageCache {
    /// Opens `/proc/kpagecgroup` for `groups`.
    pub(super) fn open(groups: &[CgroupId]) -> io::Result<Self> {
        let groups = groups.iter().map(|group| group.number()).collect();
        Ok(Self { groups, charges: kernel_files::open("/proc/kpagecgroup")? })
    }

    /// Marks the pages as idle.
    pub(super) fn mark(&self, flags: &PageFlags, bitmap: &IdleBitmap) -> io::Result<()> {
        self.each_batch(flags, |heads| bitmap.mark(heads.iter().copied()))
    }

    /// Returns the number of pages, and the number of pages that are not idle any more.
    pub(super) fn count(&self, flags: &PageFlags, bitmap: &IdleBitmap) -> io::Result<(u64, u64)> {
        let (mut all, mut touched) = (0, 0);
        self.each_batch(flags, |heads| {
            let idle = bitmap.idle(heads.iter().copied())?;
            all += idle.len() as u64;
            touched += idle.iter().filter(|is_idle| **is_idle != Some(true)).count() as u64;
            Ok(())
        })?;
        Ok((all, touched))
    }

    /// Calls `each` with batches of frames in ascending order: for each page, the first frame of its folio.
    fn each_batch(&self, flags: &PageFlags, mut each: impl FnMut(&[Frame]) -> io::Result<()>) -> io::Result<()> {
        let mut bytes = vec![0; AT_ONCE * ENTRY];
        // First frame of the current folio, its flags and its group. Some kernels show no group for the other frames of a folio.
        let mut head = (Frame(0), 0, 0);
        let mut first = 0;
        loop {
            let read = self.charges.read_at(&mut bytes, first * ENTRY as u64)?;
            let (charges, _) = bytes[..read].as_chunks::<ENTRY>();
            if charges.is_empty() {
                return Ok(());
            }
            let frames: Vec<Frame> = (first..first + charges.len() as u64).map(Frame).collect();
            let mut heads = Vec::new();
            for ((frame, own), charge) in frames.iter().zip(flags.of(&frames)?).zip(charges) {
                if own & COMPOUND_TAIL == 0 {
                    head = (*frame, own, u64::from_ne_bytes(*charge));
                }
                if is_unmapped_cache(head.1) && self.groups.contains(&head.2) {
                    heads.push(head.0);
                }
            }
            each(&heads)?;
            first += charges.len() as u64;
        }
    }
}

/// Returns true if a folio with these flags is in the page cache and no process maps it.
const fn is_unmapped_cache(flags: u64) -> bool {
    flags & (LRU | MAPPED | ANONYMOUS) == LRU
}

#[cfg(test)]
mod tests {
    use super::super::page_flags::COMPOUND_HEAD;
    use super::*;

    #[test]
    fn mapped_and_anonymous_pages_are_no_unmapped_cache() {
        assert!(is_unmapped_cache(LRU) && is_unmapped_cache(LRU | COMPOUND_HEAD));
        assert!(!is_unmapped_cache(LRU | MAPPED) && !is_unmapped_cache(LRU | ANONYMOUS) && !is_unmapped_cache(0));
    }
}
