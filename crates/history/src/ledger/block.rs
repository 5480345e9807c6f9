//! A live block.

use memtrace_model::{AbsAddr, Bytes, Tick, Tid};

use super::address_table::Addressed;

/// Number of classes of sizes. A block of class N has less than 2^N bytes, and at least half as many.
pub(super) const SIZE_CLASSES: usize = 65;

/// Returns the class of a size.
pub(super) const fn size_class(size: Bytes) -> usize {
    (u64::BITS - size.0.leading_zeros()) as usize
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Address of the block. The upper 8 bits contain the lowest 8 bits of the allocating thread's ID.
    address_and_thread: u64,
    pub(super) size: Bytes,
    /// Index of the stack in the image's totals.
    pub(super) stack: u32,
    pub(super) tick: Tick,
}

const _: () = assert!(size_of::<Block>() == 24);

/// User addresses have at most this many bits (Documentation/arch/x86/x86_64/mm.rst).
const ADDRESS_BITS: u32 = 56;

impl Block {
    #[inline]
    pub(super) const fn new(address: AbsAddr, tid: Tid, size: Bytes, stack: u32, tick: Tick) -> Self {
        let address_and_thread = Self::key(address).0 | (tid.0 as u64) << ADDRESS_BITS;
        Self { address_and_thread, size, stack, tick }
    }

    /// Returns the address table's key for the block at an address.
    #[inline]
    pub(super) const fn key(address: AbsAddr) -> AbsAddr {
        AbsAddr(address.0 & ((1 << ADDRESS_BITS) - 1))
    }

    /// Returns true if `tid` and the ID of the allocating thread have the same lowest 8 bits. These bits
    /// distinguish most threads of a process, which usually have consecutive IDs.
    #[inline]
    pub(super) const fn may_be_of(&self, tid: Tid) -> bool {
        self.address_and_thread >> ADDRESS_BITS == (tid.0 & 0xff) as u64
    }
}

impl Addressed for Block {
    fn address(&self) -> AbsAddr {
        Self::key(AbsAddr(self.address_and_thread))
    }
}
