//! Conversion of `.eh_frame` to spans of rows, in the order of the section.

use std::mem::size_of;

use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindContext, UnwindSection as _,
};
use memtrace_common::unwind::Rule;
use rustc_hash::FxHashMap;

use super::code::Code;
use super::contents::Contents;
use super::error::Error;
use super::row::Row;
use super::rule::{Rules, Section, UNTABLED};

/// Limit of the bytes read, as a multiple of the section's length. Each description executes the instructions of its common
/// entry, so a small section could execute a large one a million times. Real sections need about twice their length.
const MAX_READS: usize = 64;
/// Bytes that may be read in addition, for small sections with another proportion.
const FREE_READS: usize = 1 << 16;
/// Rows allowed in addition to one for each byte of code; real objects have one for about 60 bytes.
const FREE_ROWS: usize = 1 << 10;

type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// Rows of one description; offsets are relative to the table's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Index of its first row in [`Frames::rows`].
    pub(super) first: usize,
    pub(super) count: usize,
}

/// Contents of a section.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) spans: Vec<Span>,
    pub(super) rows: Vec<Row>,
    /// The distinct rules, referenced by rows by index.
    pub(super) rules: Vec<Rule>,
    /// Number of descriptions that could not be decoded, so that it is unknown which code they cover.
    pub(super) unreadable: u64,
}

/// State of the conversion.
struct Converter<'data, 'a> {
    contents: &'a Contents,
    origin: u64,
    section: &'a Section<'data>,
    bases: &'a BaseAddresses,
    common: FxHashMap<usize, CommonInformationEntry<Slice<'data>>>,
    /// Bytes that may still be read.
    budget: usize,
    /// Rows that may still be added.
    free_rows: usize,
    numbers: FxHashMap<Rule, u32>,
    frames: Frames,
}

impl Frames {
    /// Converts the section of `contents`; offsets are relative to `origin`.
    ///
    /// A description that cannot be decoded is skipped and counted. A section whose entries are not contiguous is an
    /// error.
    pub(super) fn read(contents: &Contents, origin: u64) -> Result<Self, Error> {
        let mut section = EhFrame::new(&contents.eh_frame, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(contents.machine.vendor());
        let mut bases = BaseAddresses::default().set_eh_frame(contents.address);
        if let Some(text) = contents.text {
            bases = bases.set_text(text);
        }
        let code: u64 = contents.code.iter().map(|code| code.size).sum();
        let mut converter = Converter {
            contents,
            origin,
            section: &section,
            bases: &bases,
            common: FxHashMap::default(),
            budget: contents.eh_frame.len().saturating_mul(MAX_READS).saturating_add(FREE_READS),
            free_rows: usize::try_from(code).unwrap_or(usize::MAX).saturating_add(FREE_ROWS),
            numbers: FxHashMap::default(),
            frames: Self { spans: Vec::new(), rows: Vec::new(), rules: Vec::new(), unreadable: 0 },
        };
        let mut context = UnwindContext::new();
        let mut at = 0;
        while let Some(entry) = Entry::parse(&contents.eh_frame, at)? {
            at = entry.end;
            match entry.kind {
                Kind::Common => converter.read_common(&entry),
                Kind::Description => converter.read_description(&entry, &mut context)?,
                Kind::Terminator => {}
            }
        }
        Ok(converter.frames)
    }
}

/// Entry of the section.
struct Entry {
    kind: Kind,
    begin: usize,
    end: usize,
}

enum Kind {
    /// Common information entry (CIE).
    Common,
    /// Frame description entry (FDE).
    Description,
    /// Length of zero. It ends the section, but linkers that join several sections may leave some in between.
    Terminator,
}

impl Entry {
    /// Parses the entry at `begin`; `None` at the end of the section (LSB Core 5.0, 10.6.1).
    fn parse(section: &[u8], begin: usize) -> Result<Option<Self>, Error> {
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
        let kind = if word(head).ok_or_else(malformed)? == 0 { Kind::Common } else { Kind::Description };
        Ok(Some(Self { kind, begin, end: begin + end }))
    }
}

impl<'data> Converter<'data, '_> {
    /// Reads a common entry. If it cannot be decoded, its descriptions are unreadable too.
    fn read_common(&mut self, entry: &Entry) {
        if let Ok(common) = self.section.cie_from_offset(self.bases, EhFrameOffset(entry.begin)) {
            self.common.insert(entry.begin, common);
        }
    }

    fn read_description(&mut self, entry: &Entry, context: &mut UnwindContext<usize>) -> Result<(), Error> {
        // Common entries precede the descriptions that refer to them.
        let common = &self.common;
        let description = self.section.fde_from_offset(self.bases, EhFrameOffset(entry.begin), |_, _, offset| {
            common.get(&offset.0).cloned().ok_or(gimli::Error::NotCiePointer(offset.0 as u64))
        });
        let Ok(description) = description else {
            self.frames.unreadable += 1;
            return Ok(());
        };
        let cost = (entry.end - entry.begin).saturating_add(description.cie().entry_len());
        self.budget = self.budget.checked_sub(cost).ok_or(Error::TooMuch("call frame instructions"))?;
        match self.covered_code(&description) {
            Some((begin, end)) => self.read_rows(&description, begin, end, context),
            None => Ok(()),
        }
    }

    /// Returns the described code, relative to the origin; `None` for the descriptions of removed code that linkers leave.
    fn covered_code(&self, description: &FrameDescriptionEntry<Slice<'data>>) -> Option<(u32, u32)> {
        let address = description.initial_address();
        let code = Code::find(&self.contents.code, address)?;
        let end = address.saturating_add(description.len()).min(code.end().0);
        let offset = |address: u64| u32::try_from(address.checked_sub(self.origin)?).ok();
        Some((offset(address)?, offset(end)?)).filter(|(begin, end)| begin < end)
    }

    fn read_rows(
        &mut self,
        description: &FrameDescriptionEntry<Slice<'data>>,
        begin: u32,
        end: u32,
        context: &mut UnwindContext<usize>,
    ) -> Result<(), Error> {
        let signal = description.is_signal_trampoline();
        let rules = Rules {
            machine: self.contents.machine,
            return_address: description.cie().return_address_register(),
            signal,
            section: self.section,
        };
        let first = self.frames.rows.len();
        let mut unwound_to = begin;
        let broken = match description.rows(self.section, self.bases, context) {
            Err(_) => true,
            Ok(mut table) => loop {
                let row = match table.next_row() {
                    Ok(Some(row)) => row,
                    Ok(None) => break false,
                    Err(_) => break true,
                };
                let offset = |address: u64| u32::try_from(address.saturating_sub(self.origin)).unwrap_or(u32::MAX);
                let (row_begin, row_end) = (offset(row.start_address()), offset(row.end_address()).min(end));
                if row_begin >= row_end {
                    continue;
                }
                unwound_to = row_end;
                self.push(row_begin, rules.convert(row))?;
            },
        };
        if broken && unwound_to < end {
            self.push(unwound_to, UNTABLED)?;
        }
        let begin = if signal { self.start_one_byte_earlier(begin, first) } else { begin };
        self.frames.spans.push(Span { begin, end, first, count: self.frames.rows.len() - first });
        Ok(())
    }

    /// Moves the first row of a signal frame back by one byte: callers are looked up by the byte before the return address,
    /// and the kernel "returns" from a signal handler to the first byte of the restorer.
    fn start_one_byte_earlier(&mut self, begin: u32, first: usize) -> u32 {
        let early = begin.saturating_sub(1);
        if let Some(row) = self.frames.rows.get_mut(first) {
            row.offset = early;
        }
        early
    }

    fn push(&mut self, offset: u32, rule: Rule) -> Result<(), Error> {
        self.free_rows = self.free_rows.checked_sub(1).ok_or(Error::TooMuch("rows for the code"))?;
        let rule = self.index_of(rule);
        self.frames.rows.push(Row { offset, rule });
        Ok(())
    }

    /// Returns the index of `rule`, adding it if it is new.
    fn index_of(&mut self, rule: Rule) -> u32 {
        let rules = &mut self.frames.rules;
        *self.numbers.entry(rule).or_insert_with(|| {
            rules.push(rule);
            // There are at most as many rules as rows, and as many rows as bytes of code, which fit into 32 bits.
            u32::try_from(rules.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

#[cfg(test)]
mod tests;
