//! USDT probes of objects.

use super::FileOffset;

/// USDT probe of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserProbe {
    /// Name of the probe, without the name of its provider.
    pub name: String,
    /// File offset of the probe's nop.
    pub offset: FileOffset,
    /// File offset of the probe's semaphore, a 16-bit counter of the attached tracers; `None` if the probe has none.
    pub semaphore: Option<FileOffset>,
    /// Register of each argument, as the index of the function argument that is passed in this register; `None` if the
    /// argument is not in such a register, or has another size.
    pub arguments: Vec<Option<u8>>,
    /// Place of each argument; `None` for a place that memtrace cannot read.
    pub places: Vec<Option<ArgumentPlace>>,
}

/// Place of an argument when a probe is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgumentPlace {
    /// Location of the value.
    pub location: ArgumentLocation,
    /// Number of bits of the value: 8, 16, 32 or 64.
    pub bits: u8,
    /// True if the value is signed.
    pub is_signed: bool,
}

/// Location of an argument when a probe is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgumentLocation {
    /// The register with this DWARF number.
    Register(u8),
    /// Memory of the process.
    Memory {
        /// DWARF number of the register with an address.
        register: u8,
        /// Bytes from this address to the value.
        offset: i64,
    },
    /// The value is a constant.
    Constant(i64),
}

impl ArgumentPlace {
    /// Returns the place of an unsigned value of 64 bits.
    #[must_use]
    pub const fn word(location: ArgumentLocation) -> Self {
        Self { location, bits: 64, is_signed: false }
    }
}
