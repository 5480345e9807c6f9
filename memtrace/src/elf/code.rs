//! An object's code and the addresses of its dynamic symbols.

use object::LittleEndian;
use object::elf::{DT_GNU_HASH, DT_HASH, DT_SYMTAB, GnuHashHeader, HashHeader, SHN_UNDEF, Sym64};
use object::pod;

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::source::{LE, Source};
use crate::model::{FileOffset, VirtOffset};

/// Bound on dynamic symbols; the largest libraries have about 100,000.
const MAX_SYMBOLS: u64 = 1 << 20;
/// Bytes of code read at once.
const CHUNK: u64 = 1 << 20;

impl<S: Source> Elf<S> {
    /// Returns the file offset of the `size` bytes at `virt`; `None` unless all of them are code in the file.
    pub(crate) fn code_offset(&self, virt: VirtOffset, size: u64) -> Option<FileOffset> {
        self.loaded().filter(|segment| segment.executable).find_map(|segment| {
            let (offset, left) = segment.locate(virt.0)?;
            (size.max(1) <= left).then_some(FileOffset(offset))
        })
    }

    /// Returns the part of the range from `first` to before `end` that is code in the file, with its address. The
    /// caller bounds the length.
    pub(crate) fn code(&self, first: u64, end: u64) -> Result<(u64, Vec<u8>), ElfError> {
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

    /// Returns the number of bytes of code.
    pub(crate) fn code_size(&self) -> u64 {
        let sizes = self.loaded().filter(|segment| segment.executable).map(|segment| segment.file_size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Calls `visit` with each chunk of the code and its address. Consecutive chunks overlap by `overlap` bytes.
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

    /// Returns the addresses of all defined dynamic symbols, unordered.
    pub(crate) fn symbol_addresses(&self) -> Result<Vec<u64>, ElfError> {
        type Symbol = Sym64<LittleEndian>;
        let Some(table) = self.dynamic_value(DT_SYMTAB) else { return Ok(Vec::new()) };
        let count = self.symbol_count()?;
        if count > MAX_SYMBOLS {
            return Err(ElfError::Malformed("too many symbols"));
        }
        let size = count * size_of::<Symbol>() as u64;
        let (offset, left) = self.locate(table)?;
        if size > left {
            return Err(BEYOND);
        }
        let bytes = self.bytes(offset, size)?;
        let symbols: &[Symbol] = pod::slice_from_all_bytes(&bytes).map_err(|()| BEYOND)?;
        let defined = symbols.iter().filter(|symbol| symbol.st_shndx.get(LE) != SHN_UNDEF);
        Ok(defined.map(|symbol| symbol.st_value.get(LE)).collect())
    }

    /// Returns the number of dynamic symbols, which only the hash tables contain.
    fn symbol_count(&self) -> Result<u64, ElfError> {
        if let Some(table) = self.dynamic_value(DT_HASH) {
            let header: HashHeader<LittleEndian> = self.entry(table, 0)?;
            return Ok(u64::from(header.chain_count.get(LE)));
        }
        let Some(table) = self.dynamic_value(DT_GNU_HASH) else { return Ok(0) };
        let header: GnuHashHeader<LittleEndian> = self.entry(table, 0)?;
        let count = u64::from(header.bucket_count.get(LE));
        if count > MAX_SYMBOLS {
            return Err(ElfError::Malformed("too many symbols"));
        }
        let bloom = u64::from(header.bloom_count.get(LE)) * size_of::<u64>() as u64;
        let buckets = table.checked_add(size_of_val(&header) as u64 + bloom).ok_or(BEYOND)?;
        let hashes = buckets.checked_add(count * size_of::<u32>() as u64).ok_or(BEYOND)?;
        let base = u64::from(header.symbol_base.get(LE));
        let mut last = 0;
        for bucket in 0..count {
            last = last.max(u64::from(self.word(buckets, bucket)?));
        }
        if last < base {
            return Ok(base);
        }
        // The last symbol ends the last chain.
        for symbol in last..last.saturating_add(MAX_SYMBOLS) {
            if self.word(hashes, symbol - base)? & 1 == 1 {
                return Ok(symbol + 1);
            }
        }
        Err(ElfError::Malformed("a hash chain does not end"))
    }
}
