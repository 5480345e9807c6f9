//! Search in the constant data of an object: the segments that are not writable.

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::segment::Segment;
use super::source::Source;

/// Number of bytes of data read at once.
const CHUNK: u64 = 1 << 20;

/// Returns the addresses of a byte sequence in the constant data. Older linkers place constant data in the segment of
/// the code, so that segment is searched if no other one has the sequence.
pub fn find(elf: &Elf<impl Source>, sequence: &[u8]) -> Result<Vec<u64>, ElfError> {
    let found = find_in(elf, sequence, |segment| !segment.executable)?;
    if found.is_empty() { find_in(elf, sequence, |segment| segment.executable) } else { Ok(found) }
}

/// Returns true if the bytes at the address `virt` are `expected`.
pub(crate) fn is_at(elf: &Elf<impl Source>, virt: u64, expected: &[u8]) -> bool {
    let length = expected.len() as u64;
    let located = elf.locate(virt).ok().filter(|(_, left)| *left >= length);
    located.is_some_and(|(offset, _)| elf.bytes(offset, length).is_ok_and(|bytes| bytes == expected))
}

/// Returns the addresses of a byte sequence in the segments of constant data that `is_searched` accepts.
fn find_in(elf: &Elf<impl Source>, sequence: &[u8], is_searched: fn(&Segment) -> bool) -> Result<Vec<u64>, ElfError> {
    let mut found = Vec::new();
    let overlap = sequence.len().saturating_sub(1) as u64;
    let is_constant = |segment: &&Segment| !segment.writable && is_searched(segment);
    for segment in elf.loaded().filter(is_constant) {
        for start in (0..segment.file_size).step_by(CHUNK as usize) {
            let offset = segment.offset.checked_add(start).ok_or(BEYOND)?;
            let bytes = elf.bytes(offset, (CHUNK + overlap).min(segment.file_size - start))?;
            let starts = bytes.windows(sequence.len().max(1)).enumerate();
            let matching = starts.filter(|(_, window)| *window == sequence).map(|(at, _)| at as u64);
            found.extend(matching.map(|at| segment.virt.wrapping_add(start + at)));
        }
    }
    Ok(found)
}
