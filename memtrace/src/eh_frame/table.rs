//! What one object says of its frames.

use memtrace_common::unwind::{PAGE_BITS, Rule};

use super::code::Code;
use super::contents::Contents;
use super::error::Error;
use super::frames::Frames;
use super::merge;
use super::row::{Row, Stats};
use crate::elf::Machine;
use crate::model::{FileOffset, VirtOffset};

/// What one object says of its frames: from which address on which rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(super) machine: Machine,
    /// Ordered by address, none overlapping another, at least one.
    pub(super) code: Vec<Code>,
    /// Ordered, each with another rule than the one before. Before the first nothing is known.
    pub(super) rows: Vec<Row>,
    /// What rows name by number. The first is [`Rule::default`].
    pub(super) rules: Vec<Rule>,
    pub(super) stats: Stats,
}

impl Table {
    /// The table of the object whose file, or image in memory, is `bytes`.
    ///
    /// # Errors
    ///
    /// Why there is none. What is merely unreadable in parts has a table, in which those parts say so.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::build(&Contents::find(bytes)?)
    }

    pub(super) fn build(contents: &Contents) -> Result<Self, Error> {
        let frames = Frames::read(contents, origin(&contents.code).0)?;
        let stats = frames.stats;
        let entry = Code::holding(&contents.code, contents.entry.0).map(|_| contents.entry);
        let entry = entry.and_then(|entry| u32::try_from(entry.0 - origin(&contents.code).0).ok());
        let (rows, rules) = merge::merge(frames, entry);
        Ok(Self { machine: contents.machine, code: contents.code.clone(), rows, rules, stats })
    }

    /// The machine that the object is for.
    #[must_use]
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// How much there is, and how much a table cannot say.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Where the table's first page begins.
    #[must_use]
    pub fn origin(&self) -> VirtOffset {
        origin(&self.code)
    }

    /// Where the byte at `offset` of the file is loaded as code; `None` where it is not.
    #[must_use]
    pub fn virt_offset(&self, offset: FileOffset) -> Option<VirtOffset> {
        self.code.iter().find_map(|code| {
            let inside = offset.0.checked_sub(code.offset.0).filter(|&inside| inside < code.size)?;
            Some(VirtOffset(code.address.0 + inside))
        })
    }

    /// The parts of the file that are loaded as code, ordered by address.
    #[must_use]
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// The rows, ordered: from which address on which rule holds.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (VirtOffset, Rule)> {
        let origin = self.origin().0;
        self.rows.iter().map(move |row| (VirtOffset(origin + u64::from(row.offset)), self.rule(*row)))
    }

    /// The rule that holds at `address`, as the kernel half finds it.
    #[must_use]
    pub fn rule_at(&self, address: VirtOffset) -> Rule {
        let offset = address.0.checked_sub(self.origin().0).and_then(|offset| u32::try_from(offset).ok());
        let Some(offset) = offset else { return Rule::default() };
        let after = self.rows.partition_point(|row| row.offset <= offset);
        after.checked_sub(1).map_or(Rule::default(), |index| self.rule(self.rows[index]))
    }

    /// How many pages of addresses there are from the origin to the last row.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.rows.last().map_or(0, |row| (row.offset >> PAGE_BITS) + 1)
    }

    fn rule(&self, row: Row) -> Rule {
        self.rules[row.rule as usize]
    }
}

/// The beginning of the page that the first code lies in.
fn origin(code: &[Code]) -> VirtOffset {
    code.first().map_or(VirtOffset(0), |code| VirtOffset(code.address.0 >> PAGE_BITS << PAGE_BITS))
}

#[cfg(test)]
mod tests;
