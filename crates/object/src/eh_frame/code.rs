//! Executable parts of an object's file.

use memtrace_model::{FileOffset, VirtOffset};

/// Executable part of an object's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Offset in the file.
    pub offset: FileOffset,
    /// Address at which it is loaded.
    pub address: VirtOffset,
    /// Length in bytes.
    pub size: u64,
}

impl Code {
    /// First address after it.
    #[must_use]
    pub const fn end(&self) -> VirtOffset {
        VirtOffset(self.address.0.saturating_add(self.size))
    }

    /// Finds the part that contains `address` in `code`, which is ordered by address.
    pub(super) fn find(code: &[Self], address: u64) -> Option<&Self> {
        let after = code.partition_point(|code| code.address.0 <= address);
        code.get(after.checked_sub(1)?).filter(|code| address < code.end().0)
    }
}
