//! Memory of a target, read in blocks.

use std::collections::BTreeMap;
use std::io;

use memtrace_model::AbsAddr;

use super::profile_error::ProfileError;

/// Sizes of a block in bytes, the largest first. The buckets of a processor are next to each other, in ranges of 256 KiB
/// (`persistentalloc`, runtime/malloc.go). A smaller block is read if the mapping begins within a larger one.
const BLOCK_SIZES: [u64; 3] = [64 << 10, 16 << 10, 4 << 10];
/// Maximum number of blocks that are kept: 8 MiB. Buckets are allocated by all processors in turns.
const MAX_BLOCKS: usize = 128;
/// Maximum number of reads for one profile: 4 GiB. A million of buckets takes about 30,000.
const MAX_READS: u32 = 1 << 16;

/// Memory of a target.
pub trait TargetMemory {
    /// Reads bytes from `address` on, up to the first page that cannot be read. Returns the number of bytes, which is at
    /// least 1 if `into` is not empty.
    ///
    /// # Errors
    ///
    /// The first byte cannot be read; [`io::ErrorKind::TimedOut`] if nothing more is to be read.
    fn read_some(&self, address: AbsAddr, into: &mut [u8]) -> io::Result<usize>;
}

/// Blocks of a target's memory, which are kept until [`Self::forget`].
pub(super) struct Blocks<'a, M> {
    memory: &'a M,
    blocks: BTreeMap<u64, Vec<u8>>,
    reads: u32,
}

impl<'a, M: TargetMemory> Blocks<'a, M> {
    pub(super) const fn new(memory: &'a M) -> Self {
        Self { memory, blocks: BTreeMap::new(), reads: 0 }
    }

    /// Forgets all blocks, so that the memory is read again.
    pub(super) fn forget(&mut self) {
        self.blocks.clear();
    }

    /// Appends `count` words from `address` on to `words`.
    pub(super) fn words(&mut self, mut address: u64, count: usize, words: &mut Vec<u64>) -> Result<(), ProfileError> {
        let end = words.len() + count;
        while words.len() < end {
            let before = words.len();
            let whole = self.at(address)?.as_chunks::<8>().0;
            words.extend(whole.iter().take(end - before).map(|word| u64::from_le_bytes(*word)));
            if words.len() == before {
                // The word is in two blocks.
                words.push(self.word(address)?);
            }
            let read = 8 * (words.len() - before) as u64;
            address = address.checked_add(read).ok_or_else(unmapped)?;
        }
        Ok(())
    }

    fn word(&mut self, address: u64) -> Result<u64, ProfileError> {
        let mut word = [0; 8];
        let mut done = 0;
        while done < word.len() {
            let at = address.checked_add(done as u64).ok_or_else(unmapped)?;
            let bytes = self.at(at)?;
            let length = bytes.len().min(word.len() - done);
            word[done..done + length].copy_from_slice(&bytes[..length]);
            done += length;
        }
        Ok(u64::from_le_bytes(word))
    }

    /// Returns the bytes from `address` to the end of a block: at least one.
    fn at(&mut self, address: u64) -> Result<&[u8], ProfileError> {
        let start = match self.start(address) {
            Some(start) => start,
            None => self.read_block(address)?,
        };
        let block = self.blocks.get(&start).map(Vec::as_slice).unwrap_or_default();
        let bytes = block.get((address - start) as usize..).unwrap_or_default();
        if bytes.is_empty() { Err(unmapped().into()) } else { Ok(bytes) }
    }

    /// Returns the start of the block that contains `address`.
    fn start(&self, address: u64) -> Option<u64> {
        let (&start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.len() as u64).then_some(start)
    }

    /// Reads a block that contains `address`, and returns its start.
    fn read_block(&mut self, address: u64) -> Result<u64, ProfileError> {
        let mut last = unmapped();
        for size in BLOCK_SIZES {
            if self.reads >= MAX_READS {
                return Err(ProfileError::Scattered);
            }
            self.reads += 1;
            let start = address - address % size;
            let mut block = vec![0; size as usize];
            match self.memory.read_some(AbsAddr(start), &mut block) {
                Ok(length) if address - start < length as u64 => {
                    block.truncate(length);
                    if self.blocks.len() >= MAX_BLOCKS {
                        self.blocks.clear();
                    }
                    self.blocks.insert(start, block);
                    return Ok(start);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error.into()),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }
}

/// Returns `N` bytes of a target's memory.
pub(super) fn read<const N: usize>(memory: &impl TargetMemory, address: AbsAddr) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut done = 0;
    while done < N {
        let at = address.0.checked_add(done as u64).ok_or_else(unmapped)?;
        match memory.read_some(AbsAddr(at), &mut bytes[done..])? {
            0 => return Err(unmapped()),
            length => done += length.min(N - done),
        }
    }
    Ok(bytes)
}

fn unmapped() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the address is not mapped")
}
