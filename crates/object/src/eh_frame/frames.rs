//! Conversion of `.eh_frame` and `.debug_frame` to spans of rows, ordered as in the sections.

use gimli::{UnwindContext, UnwindSection};
use memtrace_common::unwind::Rule;
use rustc_hash::FxHashMap;

use super::contents::ObjectContents;
use super::coverage::Coverage;
use super::error::Error;
use super::reader::{Description, Position, Reader, Slice};
use super::row::Row;
use super::rule::{Rules, UNTABLED};

/// Number of rows that an object may have in addition to one for each byte of code. Real objects have one row for about 60
/// bytes.
const FREE_ROWS: usize = 1 << 10;

/// Rows of one description. Offsets of code are relative to the table's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Index of the description's first row in [`Frames::rows`].
    pub(super) first: usize,
    pub(super) count: usize,
}

/// Converted descriptions of a section, or of a part of it.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) spans: Vec<Span>,
    pub(super) rows: Vec<Row>,
    /// Distinct rules. Rows refer to them by index.
    pub(super) rules: Vec<Rule>,
    /// Number of descriptions that could not be decoded. The code that they cover is unknown.
    pub(super) unreadable: u64,
}

/// State of the conversion.
struct Converter {
    /// Number of rows that may still be added.
    free_rows: usize,
    numbers: FxHashMap<Rule, u32>,
    frames: Frames,
}

/// Returns the maximum number of rows of an object.
pub(super) fn max_rows(contents: &ObjectContents) -> usize {
    let code: u64 = contents.code.iter().map(|code| code.size).sum();
    usize::try_from(code).unwrap_or(usize::MAX).saturating_add(FREE_ROWS)
}

impl Frames {
    /// Converts the sections of `contents`. Offsets of code are relative to `origin`. A description in `.debug_frame`
    /// is converted if `.eh_frame` covers none of its code.
    ///
    /// A description that cannot be decoded is skipped and counted. A section with gaps between its entries is an
    /// error. If `.eh_frame` has descriptions, a `.debug_frame` with an error is left out, and counts as a description
    /// that cannot be decoded.
    pub(super) fn read(contents: &ObjectContents, origin: u64) -> Result<Self, Error> {
        let mut converter = Converter::new(max_rows(contents));
        let mut context = UnwindContext::new();
        let reader = Reader::of_eh_frame(contents, origin);
        let mut unreadable = reader.scan(|_, description| converter.read_rows(&reader, &description, &mut context))?;
        if !contents.debug_frame.is_empty() {
            let covered = Coverage::new(converter.frames.spans.iter().map(|span| (span.begin, span.end)));
            let reader = Reader::of_debug_frame(contents, origin);
            let Frames { spans, rows, rules, .. } = &converter.frames;
            let (spans, rows, rules) = (spans.len(), rows.len(), rules.len());
            let scanned = reader.scan(|_, description| {
                if covered.overlaps(description.first_row(), description.end) {
                    return Ok(());
                }
                converter.read_rows(&reader, &description, &mut context)
            });
            unreadable += match scanned {
                Ok(count) => count,
                Err(error) if spans == 0 => return Err(error),
                Err(_) => {
                    converter.frames.spans.truncate(spans);
                    converter.frames.rows.truncate(rows);
                    converter.frames.rules.truncate(rules);
                    1
                }
            };
        }
        Ok(Self { unreadable, ..converter.frames })
    }

    /// Converts the descriptions at these positions, with at most `max_rows` rows.
    pub(super) fn read_at(
        contents: &ObjectContents,
        origin: u64,
        positions: impl Iterator<Item = Position>,
        max_rows: usize,
    ) -> Result<Self, Error> {
        let eh_frame = Reader::of_eh_frame(contents, origin);
        let debug_frame = Reader::of_debug_frame(contents, origin);
        let mut converter = Converter::new(max_rows);
        let mut context = UnwindContext::new();
        for position in positions {
            match position {
                Position::EhFrame(at) => {
                    if let Some(description) = eh_frame.description_at(at) {
                        converter.read_rows(&eh_frame, &description, &mut context)?;
                    }
                }
                Position::DebugFrame(at) => {
                    if let Some(description) = debug_frame.description_at(at) {
                        converter.read_rows(&debug_frame, &description, &mut context)?;
                    }
                }
            }
        }
        Ok(converter.frames)
    }
}

impl Converter {
    fn new(free_rows: usize) -> Self {
        Self { free_rows, numbers: FxHashMap::default(), frames: Frames::default() }
    }

    fn read_rows<'data, S: UnwindSection<Slice<'data>>>(
        &mut self,
        reader: &Reader<'data, S>,
        description: &Description<'data>,
        context: &mut UnwindContext<usize>,
    ) -> Result<(), Error> {
        let Description { entry, begin, end } = description;
        let (begin, end) = (*begin, *end);
        let Reader { contents, origin, section, bytes, bases, .. } = reader;
        let rules = Rules {
            machine: contents.machine,
            return_address: entry.cie().return_address_register(),
            signal: entry.is_signal_trampoline(),
            section: bytes,
        };
        let first = self.frames.rows.len();
        let mut unwound_to = begin;
        let broken = match entry.rows(section, bases, context) {
            Err(_) => true,
            Ok(mut table) => loop {
                let row = match table.next_row() {
                    Ok(Some(row)) => row,
                    Ok(None) => break false,
                    Err(_) => break true,
                };
                let offset = |address: u64| u32::try_from(address.saturating_sub(*origin)).unwrap_or(u32::MAX);
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
        let begin = description.first_row();
        if let Some(row) = self.frames.rows.get_mut(first) {
            row.offset = begin;
        }
        self.frames.spans.push(Span { begin, end, first, count: self.frames.rows.len() - first });
        Ok(())
    }

    fn push(&mut self, offset: u32, rule: Rule) -> Result<(), Error> {
        self.free_rows = self.free_rows.checked_sub(1).ok_or(Error::TooMuch("rows for the code"))?;
        let rule = self.index_of(rule);
        self.frames.rows.push(Row { offset, rule });
        Ok(())
    }

    /// Returns the index of `rule`; adds the rule if it is new.
    fn index_of(&mut self, rule: Rule) -> u32 {
        let rules = &mut self.frames.rules;
        *self.numbers.entry(rule).or_insert_with(|| {
            rules.push(rule);
            // There are at most as many rules as rows, and the number of rows is limited by the bytes of code, which
            // fit into 32 bits.
            u32::try_from(rules.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

#[cfg(test)]
mod tests;
