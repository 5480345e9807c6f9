//! Unwind table of one object.

use memtrace_common::unwind::{PAGE_BITS, Rule};
use memtrace_model::VirtOffset;

use super::code::Code;
use super::contents::ObjectContents;
use super::error::Error;
use super::frames::Frames;
use super::merge::{self, FilledCode};
use super::row::Row;
use crate::elf::Machine;

/// Unwind table of one object: rules by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(super) machine: Machine,
    /// Executable parts, at least one, ordered by address and without overlap.
    pub(super) code: Vec<Code>,
    /// Rows, ordered by offset. Consecutive rows have different rules. Addresses before the first row have no
    /// information.
    pub(super) rows: Vec<Row>,
    /// Rules. Rows refer to them by index. The first rule is [`Rule::default`].
    pub(super) rules: Vec<Rule>,
}

impl Table {
    /// Builds the table of an object. `bytes` is its file or memory image.
    ///
    /// # Errors
    ///
    /// The reason why the object has no table. If only parts are unreadable, the table has no information for these
    /// parts.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::build(&ObjectContents::find(bytes)?)
    }

    /// Builds the table of the object with these contents.
    ///
    /// # Errors
    ///
    /// As for [`Self::from_bytes`].
    pub fn build(contents: &ObjectContents) -> Result<Self, Error> {
        let frames = Frames::read(contents, origin(&contents.code).0)?;
        let (rows, rules) = merge::merge(frames, filled_code(contents), entry_offset(contents));
        Ok(Self { machine: contents.machine, code: contents.code.clone(), rows, rules })
    }

    /// Returns the architecture of the object.
    #[must_use]
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns the address of the table's first page.
    #[must_use]
    pub fn origin(&self) -> VirtOffset {
        origin(&self.code)
    }

    /// Returns the executable parts of the file, ordered by address.
    #[must_use]
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// Returns the rows in order: the first address and the rule of each.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (VirtOffset, Rule)> {
        let origin = self.origin().0;
        self.rows.iter().map(move |row| (VirtOffset(origin + u64::from(row.offset)), self.rule(*row)))
    }

    /// Returns the rule for `address`, as the BPF programs find it.
    #[must_use]
    pub fn rule_at(&self, address: VirtOffset) -> Rule {
        let offset = address.0.checked_sub(self.origin().0).and_then(|offset| u32::try_from(offset).ok());
        let Some(offset) = offset else { return Rule::default() };
        let after = self.rows.partition_point(|row| row.offset <= offset);
        after.checked_sub(1).map_or(Rule::default(), |index| self.rule(self.rows[index]))
    }

    /// Returns the number of table pages from the origin to the last row.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.rows.last().map_or(0, |row| (row.offset >> PAGE_BITS) + 1)
    }

    fn rule(&self, row: Row) -> Rule {
        self.rules[row.rule as usize]
    }
}

/// Returns the offset of the entry point from the origin; `None` if it is not in the code.
pub(super) fn entry_offset(contents: &ObjectContents) -> Option<u32> {
    let entry = Code::find(&contents.code, contents.entry.0).map(|_| contents.entry)?;
    u32::try_from(entry.0 - origin(&contents.code).0).ok()
}

/// Returns the functions with a rule that follows from their name.
pub(super) fn filled_code(contents: &ObjectContents) -> impl Iterator<Item = FilledCode> + '_ {
    let origin = origin(&contents.code).0;
    let offset = move |address: u64| u32::try_from(address.checked_sub(origin)?).ok();
    contents.named.iter().filter_map(move |code| {
        Some(FilledCode { begin: offset(code.begin)?, end: offset(code.end)?, rule: code.rule })
    })
}

/// Returns the start of the page that contains the first executable part.
pub(super) fn origin(code: &[Code]) -> VirtOffset {
    code.first().map_or(VirtOffset(0), |code| VirtOffset(code.address.0 >> PAGE_BITS << PAGE_BITS))
}

#[cfg(test)]
mod tests;
