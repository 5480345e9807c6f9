//! Index of an object's call frame information. Single pages of its table are made from the index before the table is
//! built.

use std::sync::Arc;

use memtrace_common::unwind::{PAGE_BITS, Rule};
use memtrace_model::VirtOffset;

use super::code::Code;
use super::contents::ObjectContents;
use super::coverage::Coverage;
use super::error::Error;
use super::frames::{Frames, Span, max_rows};
use super::merge::{self, FilledCode};
use super::reader::{Position, Reader};
use super::table::{entry_offset, filled_code, origin};

/// Index of the descriptions (FDEs) of an object by address. Their instructions are executed when a page is made.
#[derive(Debug)]
pub struct Descriptions {
    contents: Arc<ObjectContents>,
    /// Extents ordered by start, with distinct starts. If descriptions have the same start, only the first one is
    /// kept.
    list: Vec<Extent>,
    unreadable: u64,
    /// Number of rows that may still be made. A description is converted again for each of its pages.
    rows_left: usize,
}

/// Code that a description covers. Its offsets are relative to the table's origin.
#[derive(Clone, Copy, Debug)]
struct Extent {
    begin: u32,
    end: u32,
    position: Position,
}

/// Rows of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRows {
    /// Rule at the start of the page.
    pub(super) before: Rule,
    /// Rows of the page: offset from the table's origin, and rule.
    pub(super) rows: Vec<(u32, Rule)>,
}

impl Descriptions {
    /// Indexes the descriptions in `contents`.
    ///
    /// # Errors
    ///
    /// The reason why the object has no table.
    pub fn find(contents: Arc<ObjectContents>) -> Result<Self, Error> {
        let mut list = Vec::new();
        let origin = origin(&contents.code).0;
        let mut unreadable = Reader::of_eh_frame(&contents, origin).scan(|at, description| {
            let position = Position::EhFrame(at);
            list.push(Extent { begin: description.first_row(), end: description.end, position });
            Ok(())
        })?;
        if !contents.debug_frame.is_empty() {
            let covered = Coverage::new(list.iter().map(|extent| (extent.begin, extent.end)));
            let before = list.len();
            let scanned = Reader::of_debug_frame(&contents, origin).scan(|at, description| {
                let (begin, end) = (description.first_row(), description.end);
                if !covered.overlaps(begin, end) {
                    list.push(Extent { begin, end, position: Position::DebugFrame(at) });
                }
                Ok(())
            });
            // As `Frames::read` does.
            unreadable += match scanned {
                Ok(count) => count,
                Err(error) if before == 0 => return Err(error),
                Err(_) => {
                    list.truncate(before);
                    1
                }
            };
        }
        list.sort_by_key(|extent| extent.begin);
        list.dedup_by_key(|extent| extent.begin);
        let rows_left = max_rows(&contents);
        Ok(Self { contents, list, unreadable, rows_left })
    }

    /// Returns the address of the table's first page.
    #[must_use]
    pub fn origin(&self) -> VirtOffset {
        origin(&self.contents.code)
    }

    /// Returns the executable parts of the file, ordered by address.
    #[must_use]
    pub fn code(&self) -> &[Code] {
        &self.contents.code
    }

    /// Returns the number of pages of the table.
    #[must_use]
    pub fn pages(&self) -> u32 {
        let end = self.list.last().map(|extent| extent.end);
        let filled = filled_code(&self.contents).map(|code| code.end).max();
        let last = end.max(entry_offset(&self.contents)).max(filled);
        last.map_or(0, |last| (last >> PAGE_BITS) + 1)
    }

    /// Returns the rows that the table will have in its page `number`; `None` if the limit of rows is reached.
    pub fn page(&mut self, number: u32) -> Option<PageRows> {
        let begin = number.checked_shl(PAGE_BITS)?;
        let end = begin.checked_add(1 << PAGE_BITS)?;
        // The last description before the page may reach into it.
        let first = self.list.partition_point(|extent| extent.begin < begin).saturating_sub(1);
        let after = self.list.partition_point(|extent| extent.begin < end);
        let positions = self.list.get(first..after)?.iter().map(|extent| extent.position);
        let frames = Frames::read_at(&self.contents, self.origin().0, positions, self.rows_left);
        let Ok(mut frames) = frames else {
            self.rows_left = 0;
            return None;
        };
        self.rows_left -= frames.rows.len();
        frames.unreadable = self.unreadable;
        let next = self.list.get(after);
        // The next description ends the code of the last one and the gap after it.
        frames.spans.extend(next.map(|next| Span { begin: next.begin, end: next.end, first: 0, count: 0 }));
        // Bounds of the code with known rows: from the first description to the next one.
        let low = if first == 0 { 0 } else { self.list[first].begin };
        let high = next.map_or(u32::MAX, |next| next.begin);
        let filled = filled_code(&self.contents)
            .map(|code| FilledCode { begin: code.begin.max(low), end: code.end.min(high), ..code })
            .filter(|code| code.begin < code.end);
        let entry = entry_offset(&self.contents).filter(|entry| (low..high).contains(entry));
        let (rows, rules) = merge::merge(frames, filled, entry);
        let rule = |rule: u32| rules.get(rule as usize).copied().unwrap_or_default();
        let (before, rest) = rows.split_at(rows.partition_point(|row| row.offset < begin));
        let rows = rest.iter().take_while(|row| row.offset < end).map(|row| (row.offset, rule(row.rule))).collect();
        Some(PageRows { before: before.last().map_or(Rule::default(), |row| rule(row.rule)), rows })
    }
}

#[cfg(test)]
mod tests;
