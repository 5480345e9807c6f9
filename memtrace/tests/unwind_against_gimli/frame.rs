//! A frame with arbitrary registers in arbitrary memory.

/// What is known of a frame that is to be unwound. Registers and memory are whatever a hash says, so that two evaluations
/// that read the same thing see the same, and those that read different things do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) pc: u64,
    seed: u64,
}

/// What unwinding finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A caller, with the CFA, its stack pointer, its frame pointer, where that is known, and the return address.
    Found { cfa: u64, sp: u64, fp: Option<u64>, ra: u64 },
    /// There is none: this is the outermost frame.
    None,
    /// There is no call frame information.
    Unknown,
}

impl Frame {
    pub(crate) fn arbitrary(pc: u64) -> Self {
        Self { pc, seed: mix(pc ^ 0x5EED) }
    }

    /// The register of that DWARF number (System V ABI, AMD64 supplement, figure 3.36).
    pub(crate) fn register(&self, number: u16) -> u64 {
        if number == 16 { self.pc } else { mix(self.seed ^ u64::from(number)) }
    }

    /// The eight bytes at `address`.
    pub(crate) fn memory(&self, address: u64) -> u64 {
        mix(address.wrapping_add(self.seed))
    }
}

/// A mixture in which any change of `number` changes half of the bits (Steele et al., `SplitMix64`, 2014).
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
