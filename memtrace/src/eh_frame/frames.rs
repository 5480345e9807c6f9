//! `.eh_frame` to spans of rows, in the order of the section.

use std::mem::size_of;

use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindContext, UnwindSection as _,
};
use memtrace_common::unwind::{Rule, cfa, fp};
use rustc_hash::FxHashMap;

use super::code::Code;
use super::contents::Contents;
use super::error::Error;
use super::row::{Row, Stats};
use super::rule::{Rules, Section, UNTABLED};

/// How many times its own length may be read of the section. A description has the instructions of a common entry run,
/// and a small section could have a large one run a million times. Real sections are at about twice.
const MAX_READS: usize = 64;
/// What may be read besides, so that small sections need not be like large ones.
const FREE_READS: usize = 1 << 16;
/// How many rows there may be besides one for each byte of code; real objects have one for about 60 bytes.
const FREE_ROWS: usize = 1 << 10;

type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// The rows of one description, offsets counted from the table's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Where in [`Frames::rows`] its rows begin.
    pub(super) first: usize,
    /// How many.
    pub(super) count: usize,
}

/// What a section says.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) spans: Vec<Span>,
    pub(super) rows: Vec<Row>,
    /// The rules that rows name by number, each once.
    pub(super) rules: Vec<Rule>,
    pub(super) stats: Stats,
}

/// What reading goes by, and what came of it so far.
struct Walk<'data, 'a> {
    contents: &'a Contents,
    origin: u64,
    section: &'a Section<'data>,
    bases: &'a BaseAddresses,
    common: FxHashMap<usize, CommonInformationEntry<Slice<'data>>>,
    /// Bytes that may still be read.
    budget: usize,
    /// Rows that may still be taken.
    room: usize,
    numbers: FxHashMap<Rule, u32>,
    found: Frames,
}

impl Frames {
    /// Reads the section of `contents`, counting addresses from `origin`.
    ///
    /// A description that cannot be read is left out and counted; only a section whose entries do not follow one
    /// another is refused.
    pub(super) fn read(contents: &Contents, origin: u64) -> Result<Self, Error> {
        let mut section = EhFrame::new(&contents.eh_frame, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(contents.machine.vendor());
        let mut bases = BaseAddresses::default().set_eh_frame(contents.address);
        if let Some(text) = contents.text {
            bases = bases.set_text(text);
        }
        let code: u64 = contents.code.iter().map(|code| code.size).sum();
        let mut walk = Walk {
            contents,
            origin,
            section: &section,
            bases: &bases,
            common: FxHashMap::default(),
            budget: contents.eh_frame.len().saturating_mul(MAX_READS).saturating_add(FREE_READS),
            room: usize::try_from(code).unwrap_or(usize::MAX).saturating_add(FREE_ROWS),
            numbers: FxHashMap::default(),
            found: Self { spans: Vec::new(), rows: Vec::new(), rules: Vec::new(), stats: Stats::default() },
        };
        let mut context = UnwindContext::new();
        let mut at = 0;
        while let Some(entry) = Entry::at(&contents.eh_frame, at)? {
            at = entry.end;
            match entry.kind {
                Kind::Common => walk.take_common(&entry),
                Kind::Description => walk.take_description(&entry, &mut context)?,
                Kind::Terminator => {}
            }
        }
        Ok(walk.found)
    }
}

/// An entry of the section.
struct Entry {
    kind: Kind,
    begin: usize,
    end: usize,
}

enum Kind {
    /// A common information entry (CIE).
    Common,
    /// A frame description entry (FDE).
    Description,
    /// A length of zero. It ends the section where programs look for an end; linkers that join several sections may
    /// leave some in between.
    Terminator,
}

impl Entry {
    /// The entry at `begin`; `None` at the end (LSB Core 5.0, 10.6.1).
    fn at(section: &[u8], begin: usize) -> Result<Option<Self>, Error> {
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

impl<'data> Walk<'data, '_> {
    /// One that cannot be read takes its descriptions with it.
    fn take_common(&mut self, entry: &Entry) {
        if let Ok(common) = self.section.cie_from_offset(self.bases, EhFrameOffset(entry.begin)) {
            self.common.insert(entry.begin, common);
        }
    }

    fn take_description(&mut self, entry: &Entry, context: &mut UnwindContext<usize>) -> Result<(), Error> {
        self.found.stats.descriptions += 1;
        // Common entries come before those that name them; one that was not met is none.
        let common = &self.common;
        let description = self.section.fde_from_offset(self.bases, EhFrameOffset(entry.begin), |_, _, offset| {
            common.get(&offset.0).cloned().ok_or(gimli::Error::NotCiePointer(offset.0 as u64))
        });
        let Ok(description) = description else {
            self.found.stats.unreadable += 1;
            return Ok(());
        };
        let cost = (entry.end - entry.begin).saturating_add(description.cie().entry_len());
        self.budget = self.budget.checked_sub(cost).ok_or(Error::TooMuch("call frame instructions"))?;
        match self.place(&description) {
            Some((begin, end)) => self.take_rows(&description, begin, end, context),
            None => {
                self.found.stats.outside += 1;
                Ok(())
            }
        }
    }

    /// What of the code is described, counted from the origin. Linkers leave descriptions of code that they removed.
    fn place(&self, description: &FrameDescriptionEntry<Slice<'data>>) -> Option<(u32, u32)> {
        let address = description.initial_address();
        let code = Code::holding(&self.contents.code, address)?;
        let end = address.saturating_add(description.len()).min(code.end().0);
        let offset = |address: u64| u32::try_from(address.checked_sub(self.origin)?).ok();
        Some((offset(address)?, offset(end)?)).filter(|(begin, end)| begin < end)
    }

    fn take_rows(
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
        let first = self.found.rows.len();
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
                self.push(row_begin, rules.of(row))?;
            },
        };
        if broken {
            self.found.stats.broken += 1;
            if unwound_to < end {
                self.push(unwound_to, UNTABLED)?;
            }
        }
        let begin = if signal { self.begin_early(begin, first) } else { begin };
        self.found.spans.push(Span { begin, end, first, count: self.found.rows.len() - first });
        Ok(())
    }

    /// Callers are looked up by the byte before the return address. The kernel "returns" from a signal's handler to the
    /// first byte of the restorer, so a signal frame's row has to begin a byte early.
    fn begin_early(&mut self, begin: u32, first: usize) -> u32 {
        let early = begin.saturating_sub(1);
        if let Some(row) = self.found.rows.get_mut(first) {
            row.offset = early;
        }
        early
    }

    fn push(&mut self, offset: u32, rule: Rule) -> Result<(), Error> {
        self.room = self.room.checked_sub(1).ok_or(Error::TooMuch("rows for the code"))?;
        let rule = self.number(rule);
        self.found.rows.push(Row { offset, rule });
        Ok(())
    }

    /// The number of `rule`, counting the row that it is for.
    fn number(&mut self, rule: Rule) -> u32 {
        let stats = &mut self.found.stats;
        stats.described_rows += 1;
        stats.untabled_rows += u64::from(rule.cfa_kind == cfa::UNTABLED);
        stats.unknown_fp_rows += u64::from(rule.fp_kind == fp::UNDEFINED);
        let rules = &mut self.found.rules;
        *self.numbers.entry(rule).or_insert_with(|| {
            rules.push(rule);
            // There are no more rules than rows, and no more rows than bytes of code, which are counted in 32 bits.
            u32::try_from(rules.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

#[cfg(test)]
mod tests;
