//! A frame with arbitrary registers in arbitrary memory.

use harness::random::mix;

/// A frame to unwind. Registers and memory are derived from a hash, so that two evaluations agree if and only if they
/// read the same registers and addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) pc: u64,
    seed: u64,
}

/// Result of unwinding a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A caller, with CFA, stack pointer, frame pointer if known, and return address.
    Found { cfa: u64, sp: u64, fp: Option<u64>, ra: u64 },
    /// The frame is the outermost one.
    None,
    /// The address has no call frame information.
    Unknown,
}

impl Frame {
    pub(crate) fn arbitrary(pc: u64) -> Self {
        Self { pc, seed: mix(pc ^ 0x5EED) }
    }

    /// Returns a register by its DWARF number (System V ABI, AMD64 supplement, figure 3.36).
    pub(crate) fn register(&self, number: u16) -> u64 {
        if number == 16 { self.pc } else { mix(self.seed ^ u64::from(number)) }
    }

    /// Returns the eight bytes at `address`.
    pub(crate) fn memory(&self, address: u64) -> u64 {
        mix(address.wrapping_add(self.seed))
    }
}
