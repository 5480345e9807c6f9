//! Sizes of blocks, which are in front of the block, as in glibc, or in a map.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::MAX_SIZES;

use crate::loss;
use crate::thread::Thread;

/// Map key: a block of a process.
#[derive(Clone, Copy)]
#[repr(C)]
struct BlockKey {
    pid: u64,
    address: u64,
}

/// Requested bytes of live blocks, for allocators that store no size in front of a block.
#[btf_map]
static SIZES: HashMap<BlockKey, u64, MAX_SIZES, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Location of the size of a block.
#[derive(Clone, Copy)]
pub enum SizePlace {
    /// The word in front of the block has the usable size.
    Header,
    /// The map has the requested size.
    Map,
}

impl SizePlace {
    /// Returns the location for blocks of an allocator. `has_sizes` is true if the allocator stores sizes in front of
    /// blocks.
    #[inline(always)]
    pub fn new(has_sizes: bool) -> Self {
        if has_sizes { Self::Header } else { Self::Map }
    }

    /// Returns the size of a new block, and stores the size if its location is the map. `requested`: requested bytes.
    #[inline(always)]
    pub fn insert(self, context: &impl EbpfContext, address: u64, requested: u64) -> u64 {
        if let Self::Header = self {
            return usable_size(address);
        }
        if SIZES.insert(&key(address), &requested, 0).is_err() {
            loss::count(context, LossReason::SizesFull, 1);
        }
        requested
    }

    /// Returns the size of a block that is about to be freed.
    #[inline(always)]
    pub fn get(self, address: u64) -> u64 {
        match self {
            Self::Header => usable_size(address),
            // SAFETY: the value is one word, which is read as a whole.
            Self::Map => unsafe { SIZES.get(&key(address)) }.copied().unwrap_or(0),
        }
    }

    /// Forgets the size of a block that was freed.
    #[inline(always)]
    pub fn remove(self, context: &impl EbpfContext, address: u64) {
        if let Self::Map = self
            && SIZES.remove(&key(address)).is_err()
        {
            loss::count(context, LossReason::SizeUnknown, 1);
        }
    }
}

#[inline(always)]
fn key(address: u64) -> BlockKey {
    BlockKey { pid: Thread::current().pid as u64, address }
}

const FLAGS: u64 = 7;
const IS_MAPPED: u64 = 2;
const WORD: u64 = 8;

/// Returns the usable size of a block. The word before the block has the size of its chunk and three flags (glibc 2.26
/// to 2.41, malloc/malloc.c, `musable`). The header of a chunk with a mapping of its own has two words, any other
/// header has one word.
#[inline(always)]
pub fn usable_size(address: u64) -> u64 {
    // SAFETY: the helper checks the address.
    let word = unsafe { bpf_probe_read_user(address.wrapping_sub(WORD) as *const u64) }.unwrap_or(0);
    size_in_word(word)
}

/// Returns the usable size of a block. `word` is the word in front of it.
#[inline(always)]
pub fn size_in_word(word: u64) -> u64 {
    // Subtracts the header without a branch: two words if the flag is set, else one.
    (word & !FLAGS).saturating_sub(WORD + ((word & IS_MAPPED) << 2))
}
