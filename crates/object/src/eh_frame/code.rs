//! Executable parts of an object's file.

use memtrace_model::{FileOffset, VirtOffset};

/// Executable part of an object's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Offset of the part in the file.
    pub offset: FileOffset,
    /// Address of the part in the object.
    pub address: VirtOffset,
    /// Length in bytes.
    pub size: u64,
}

impl Code {
    /// Returns the first address after the part.
    #[must_use]
    pub const fn end(&self) -> VirtOffset {
        VirtOffset(self.address.0.saturating_add(self.size))
    }

    /// Returns the part that contains `address`. `code` is ordered by address.
    pub(super) fn find(code: &[Self], address: u64) -> Option<&Self> {
        let after = code.partition_point(|code| code.address.0 <= address);
        code.get(after.checked_sub(1)?).filter(|code| address < code.end().0)
    }
}
