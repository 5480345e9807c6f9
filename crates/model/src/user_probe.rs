//! USDT probes that programs contain.

use super::FileOffset;

/// USDT probe of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserProbe {
    /// Its name, without that of its provider.
    pub name: String,
    /// Offset of its nop.
    pub offset: FileOffset,
    /// Offset of the counter of its users, 16 bits.
    pub semaphore: Option<FileOffset>,
    /// For each argument of 8 bytes, the number of the argument of a call with the same register; `None` for another place.
    pub arguments: Vec<Option<u8>>,
}
