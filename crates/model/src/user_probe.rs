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
    /// Location of each argument: the number of the function argument that is passed in the same register; `None` if
    /// the argument has another location or size than such a register.
    pub arguments: Vec<Option<u8>>,
}
