//! Executable parts of an object's file.

use crate::model::{FileOffset, VirtOffset};

/// A part of an object's file that is loaded as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Where in the file it begins.
    pub offset: FileOffset,
    /// Where it is loaded.
    pub address: VirtOffset,
    /// How many bytes it has.
    pub size: u64,
}

impl Code {
    /// The address behind the last.
    #[must_use]
    pub const fn end(&self) -> VirtOffset {
        VirtOffset(self.address.0.saturating_add(self.size))
    }

    /// The part of `code`, which is ordered by address, that `address` lies in.
    pub(super) fn holding(code: &[Self], address: u64) -> Option<&Self> {
        let after = code.partition_point(|code| code.address.0 <= address);
        code.get(after.checked_sub(1)?).filter(|code| address < code.end().0)
    }
}
