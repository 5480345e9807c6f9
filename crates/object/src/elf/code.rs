//! Code of an object: the bytes of its executable segments.

use memtrace_model::{FileOffset, VirtOffset};

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::source::Source;

/// Number of bytes of code read at once.
const CHUNK: u64 = 1 << 20;

impl<S: Source> Elf<S> {
    /// Returns the file offset of the `size` bytes at `virt`; `None` if one of them is no code in the file.
    pub(crate) fn code_offset(&self, virt: VirtOffset, size: u64) -> Option<FileOffset> {
        self.loaded().filter(|segment| segment.executable).find_map(|segment| {
            let (offset, left) = segment.locate(virt.0)?;
            (size.max(1) <= left).then_some(FileOffset(offset))
        })
    }

    /// Returns the code in the address range from `first` to before `end`, with the address of its first byte. If the
    /// range has code of several segments, only the first part is returned. The caller bounds the length.
    pub fn code(&self, first: u64, end: u64) -> Result<(u64, Vec<u8>), ElfError> {
        for segment in self.loaded().filter(|segment| segment.executable) {
            let segment_end = segment.virt.saturating_add(segment.file_size);
            let (from, to) = (first.max(segment.virt), end.min(segment_end));
            if from < to {
                let offset = segment.offset.checked_add(from - segment.virt).ok_or(BEYOND)?;
                return Ok((from, self.bytes(offset, to - from)?));
            }
        }
        Ok((first, Vec::new()))
    }

    pub(crate) fn code_size(&self) -> u64 {
        let sizes = self.loaded().filter(|segment| segment.executable).map(|segment| segment.file_size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Calls `visit` with the address and the bytes of each chunk of the code. Consecutive chunks overlap by
    /// `overlap` bytes.
    pub(crate) fn for_each_code_chunk(
        &self,
        overlap: usize,
        mut visit: impl FnMut(u64, &[u8]),
    ) -> Result<(), ElfError> {
        for segment in self.loaded().filter(|segment| segment.executable) {
            let mut done = 0;
            while done < segment.file_size {
                let from = u64::saturating_sub(done, overlap as u64);
                let to = segment.file_size.min(done + CHUNK);
                let offset = segment.offset.checked_add(from).ok_or(BEYOND)?;
                visit(segment.virt.wrapping_add(from), &self.bytes(offset, to - from)?);
                done = to;
            }
        }
        Ok(())
    }
}
