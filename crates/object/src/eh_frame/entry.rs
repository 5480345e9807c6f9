//! Entries of `.eh_frame` and `.debug_frame`.

use std::mem::size_of;

use super::error::Error;

/// Value of the field after the length that marks a common entry in `.eh_frame` (LSB Core 5.0, 10.6.1). In a frame
/// description, the field has the position of the common entry.
pub(super) const EH_FRAME_COMMON: u32 = 0;
/// Value of this field that marks a common entry in `.debug_frame` (DWARF 5, section 7.24).
pub(super) const DEBUG_FRAME_COMMON: u32 = u32::MAX;

/// Position of an entry in the section, in bytes.
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) begin: usize,
    pub(super) end: usize,
}

pub(super) enum Kind {
    /// Common information entry (CIE).
    Common,
    /// Frame description entry (FDE).
    Description,
    /// Entry with length 0. It ends a section. A linker that joins several sections may leave terminators between other
    /// entries.
    Terminator,
}

impl Entry {
    /// Parses the entry at `begin`; `None` at the end of the section (LSB Core 5.0, 10.6.1). `common`: the value that
    /// marks a common entry.
    pub(super) fn parse(section: &[u8], begin: usize, common: u32) -> Result<Option<Self>, Error> {
        let malformed = || Error::Malformed("call frame information that ends too early");
        let rest = section.get(begin..).ok_or_else(malformed)?;
        if rest.is_empty() {
            return Ok(None);
        }
        let word = |at: usize| rest.get(at..).and_then(<[u8]>::first_chunk).copied().map(u32::from_le_bytes);
        let (head, length) = match word(0).ok_or_else(malformed)? {
            0 => return Ok(Some(Self { kind: Kind::Terminator, begin, end: begin + size_of::<u32>() })),
            u32::MAX => {
                let length = rest.get(4..).and_then(<[u8]>::first_chunk).copied().map(u64::from_le_bytes);
                (12, usize::try_from(length.ok_or_else(malformed)?).map_err(|_| malformed())?)
            }
            length => (4, usize::try_from(length).map_err(|_| malformed())?),
        };
        let end = head + length.min(rest.len());
        if length < size_of::<u32>() || end > rest.len() || length > rest.len() {
            return Err(malformed());
        }
        let kind = if word(head).ok_or_else(malformed)? == common { Kind::Common } else { Kind::Description };
        Ok(Some(Self { kind, begin, end: begin + end }))
    }

    /// Returns true if a section consists of entries, without gaps between them.
    pub(super) fn are_valid(section: &[u8], common: u32) -> bool {
        let mut begin = 0;
        loop {
            match Self::parse(section, begin, common) {
                Ok(Some(entry)) => begin = entry.end,
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}
