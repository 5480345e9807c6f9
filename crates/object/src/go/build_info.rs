//! Build information of Go programs: the version of the toolchain (debug/buildinfo/buildinfo.go).

use object::LittleEndian;
use object::elf::PT_LOAD;

use super::version::GoVersion;
use crate::elf::{Elf, ElfError, Sections, Source};

const LE: LittleEndian = LittleEndian;

/// Start of the build information.
const MAGIC: &[u8; 14] = b"\xff Go buildinf:";
/// Alignment of the build information in bytes.
const ALIGN: usize = 16;
/// Size of the header in bytes. The version and the module information follow it, from Go 1.18 on.
const HEADER: u64 = 32;
/// Flag of a header that is followed by the version. Older headers have a pointer to it.
const HAS_STRINGS: u8 = 2;
/// Number of bytes of data read at once.
const CHUNK: u64 = 1 << 20;
/// Maximum number of bytes of the version together with its encoded length.
const MAX_VERSION: u64 = 10 + 256;

/// Returns the version of the toolchain; `None` if the object has no build information.
pub(super) fn version(elf: &Elf<impl Source>) -> Result<Option<GoVersion>, ElfError> {
    let Some(address) = find(elf)? else { return Ok(None) };
    let text = match bytes_at(elf, address, HEADER) {
        Some(header) if header[15] & HAS_STRINGS != 0 => inline_version(elf, address.saturating_add(HEADER)),
        Some(header) => pointed_version(elf, &header),
        None => None,
    };
    Ok(text.and_then(|text| GoVersion::parse(std::str::from_utf8(&text).ok()?)))
}

/// Returns the address of the build information.
fn find(elf: &Elf<impl Source>) -> Result<Option<u64>, ElfError> {
    let named = Sections::read(elf).and_then(|sections| {
        let section = sections.named(".go.buildinfo")?;
        Some((section.sh_addr.get(LE), section.sh_size.get(LE)))
    });
    if let Some((start, size)) = named {
        return find_in(elf, start, size);
    }
    // Without the section, the build information is at the start of the first writable segment.
    let segment = elf.segments().iter().find(|segment| segment.kind == PT_LOAD && segment.writable);
    segment.map_or(Ok(None), |segment| find_in(elf, segment.virt, segment.file_size))
}

/// Returns the first address with the magic number in `size` bytes from the address `start` on.
fn find_in(elf: &Elf<impl Source>, start: u64, size: u64) -> Result<Option<u64>, ElfError> {
    let Some(first) = start.checked_next_multiple_of(ALIGN as u64) else { return Ok(None) };
    let Ok((offset, left)) = elf.locate(first) else { return Ok(None) };
    let size = left.min(size.saturating_sub(first - start));
    for done in (0..size).step_by(CHUNK as usize) {
        let bytes = elf.bytes_in_file(offset.saturating_add(done), CHUNK.min(size - done))?;
        let found = bytes.chunks(ALIGN).position(|bytes| bytes.starts_with(MAGIC));
        if let Some(index) = found {
            return Ok(first.checked_add(done + (index * ALIGN) as u64));
        }
    }
    Ok(None)
}

/// Returns the version that follows the header: its length as a varint, and its bytes.
fn inline_version(elf: &Elf<impl Source>, address: u64) -> Option<Vec<u8>> {
    let (_, left) = elf.locate(address).ok()?;
    let bytes = bytes_at(elf, address, left.min(MAX_VERSION))?;
    let (mut length, mut shift) = (0_u64, 0);
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        length |= u64::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            let end = usize::try_from(length).ok()?.checked_add(index + 1)?;
            return bytes.get(index + 1..end).map(<[u8]>::to_vec);
        }
    }
    None
}

/// Returns the version of a header with pointers: the address of a string of Go, which has the address and the length of the
/// bytes. This is for the message that the version is not supported.
fn pointed_version(elf: &Elf<impl Source>, header: &[u8]) -> Option<Vec<u8>> {
    const IS_64_BIT_LITTLE_ENDIAN: [u8; 2] = [8, 0];
    if header[14..16] != IS_64_BIT_LITTLE_ENDIAN {
        return None;
    }
    let string = bytes_at(elf, word(header.get(16..24)?)?, 16)?;
    let (address, length) = (word(string.get(..8)?)?, word(string.get(8..)?)?);
    if length > MAX_VERSION { None } else { bytes_at(elf, address, length) }
}

fn word(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Returns the bytes at an address, if all of them are in one segment of the file. The caller bounds the length.
fn bytes_at(elf: &Elf<impl Source>, address: u64, length: u64) -> Option<Vec<u8>> {
    let (offset, left) = elf.locate(address).ok()?;
    if length > left { None } else { elf.bytes_in_file(offset, length).ok() }
}
