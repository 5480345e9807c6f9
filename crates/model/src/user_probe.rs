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
}
