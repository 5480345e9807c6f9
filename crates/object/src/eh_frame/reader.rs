//! Reader of the descriptions (FDEs) in `.eh_frame` and `.debug_frame`.

use gimli::{
    BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindOffset, UnwindSection,
};
use rustc_hash::FxHashMap;

use super::code::Code;
use super::contents::ObjectContents;
use super::entry::{DEBUG_FRAME_COMMON, EH_FRAME_COMMON, Entry, Kind};
use super::error::Error;
use super::machine::vendor;

/// Maximum number of bytes read, as a multiple of the section's length. Each description executes the instructions of
/// its common entry (CIE), so a hostile section could execute a large common entry a million times. Real sections
/// need about twice their length.
const MAX_READS: usize = 64;
/// Number of bytes that may be read in addition, for small sections that need a larger multiple.
const FREE_READS: usize = 1 << 16;

pub(super) type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// Reader of a section.
pub(super) struct Reader<'data, S> {
    pub(super) contents: &'data ObjectContents,
    /// Base address of the offsets of code.
    pub(super) origin: u64,
    pub(super) section: S,
    pub(super) bytes: &'data [u8],
    pub(super) bases: BaseAddresses,
    /// Value that marks a common entry.
    common: u32,
}

/// Position of a description: its offset in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    EhFrame(usize),
    DebugFrame(usize),
}

/// A decoded description (FDE). Offsets of code are relative to the reader's origin.
pub(super) struct Description<'data> {
    pub(super) entry: FrameDescriptionEntry<Slice<'data>>,
    /// Offset of the first described byte.
    pub(super) begin: u32,
    /// Offset after the last described byte.
    pub(super) end: u32,
}

impl<'data> Reader<'data, EhFrame<Slice<'data>>> {
    /// Opens the `.eh_frame` of `contents`. Offsets of code are relative to `origin`.
    pub(super) fn of_eh_frame(contents: &'data ObjectContents, origin: u64) -> Self {
        let mut section = EhFrame::new(&contents.eh_frame, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(vendor(contents.machine));
        let mut bases = BaseAddresses::default().set_eh_frame(contents.address);
        if let Some(text) = contents.text {
            bases = bases.set_text(text);
        }
        Self { contents, origin, section, bytes: &contents.eh_frame, bases, common: EH_FRAME_COMMON }
    }
}

impl<'data> Reader<'data, DebugFrame<Slice<'data>>> {
    /// Opens the `.debug_frame` of `contents`. Offsets of code are relative to `origin`.
    pub(super) fn of_debug_frame(contents: &'data ObjectContents, origin: u64) -> Self {
        let mut section = DebugFrame::new(&contents.debug_frame, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(vendor(contents.machine));
        let bases = BaseAddresses::default();
        Self { contents, origin, section, bytes: &contents.debug_frame, bases, common: DEBUG_FRAME_COMMON }
    }
}

impl<'data, S: UnwindSection<Slice<'data>>> Reader<'data, S> {
    /// Passes the descriptions to `each` in the order of the section, with their offsets in it. Skips descriptions of
    /// code that a linker has removed. Returns the number of descriptions that cannot be decoded. The code that they
    /// cover is unknown.
    ///
    /// A section with gaps between its entries is an error.
    pub(super) fn scan(
        &self,
        mut each: impl FnMut(usize, Description<'data>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let mut common = FxHashMap::default();
        let mut unreadable = 0;
        let mut budget = self.bytes.len().saturating_mul(MAX_READS).saturating_add(FREE_READS);
        let mut at = 0;
        while let Some(entry) = Entry::parse(self.bytes, at, self.common)? {
            at = entry.end;
            match entry.kind {
                Kind::Common => {
                    // If a common entry cannot be decoded, its descriptions are unreadable too.
                    if let Ok(decoded) = self.section.cie_from_offset(&self.bases, S::Offset::from(entry.begin)) {
                        common.insert(entry.begin, decoded);
                    }
                }
                Kind::Description => {
                    let Some(decoded) = self.decode(entry.begin, &common) else {
                        unreadable += 1;
                        continue;
                    };
                    let cost = (entry.end - entry.begin).saturating_add(decoded.cie().entry_len());
                    budget = budget.checked_sub(cost).ok_or(Error::TooMuch("call frame instructions"))?;
                    if let Some(description) = self.description(decoded) {
                        each(entry.begin, description)?;
                    }
                }
                Kind::Terminator => {}
            }
        }
        Ok(unreadable)
    }

    /// Returns the description at offset `position` of the section, which [`Self::scan`] has found there.
    pub(super) fn description_at(&self, position: usize) -> Option<Description<'data>> {
        let entry = self.section.fde_from_offset(&self.bases, S::Offset::from(position), |section, bases, offset| {
            section.cie_from_offset(bases, offset)
        });
        self.description(entry.ok()?)
    }

    fn decode(
        &self,
        position: usize,
        common: &FxHashMap<usize, CommonInformationEntry<Slice<'data>>>,
    ) -> Option<FrameDescriptionEntry<Slice<'data>>> {
        // In `.eh_frame`, a common entry precedes the descriptions that refer to it. The format of `.debug_frame` permits a
        // later one. Such a description counts as unreadable.
        let entry = self.section.fde_from_offset(&self.bases, S::Offset::from(position), |_, _, offset| {
            let offset: usize = UnwindOffset::into(offset);
            common.get(&offset).cloned().ok_or(gimli::Error::NotCiePointer(offset as u64))
        });
        entry.ok()
    }

    /// Returns the description with the code that it covers; `None` if it covers no code of the object.
    fn description(&self, entry: FrameDescriptionEntry<Slice<'data>>) -> Option<Description<'data>> {
        let address = entry.initial_address();
        let code = Code::find(&self.contents.code, address)?;
        let end = address.saturating_add(entry.len()).min(code.end().0);
        let offset = |address: u64| u32::try_from(address.checked_sub(self.origin)?).ok();
        let (begin, end) = (offset(address)?, offset(end)?);
        (begin < end).then_some(Description { entry, begin, end })
    }
}

impl Description<'_> {
    /// Returns the first offset that the rows of the description apply to. For a signal frame it is one byte before the code: a
    /// signal handler returns to the first byte of the restorer, and callers are looked up by the byte before the return
    /// address.
    pub(super) fn first_row(&self) -> u32 {
        if self.entry.is_signal_trampoline() { self.begin.saturating_sub(1) } else { self.begin }
    }
}
