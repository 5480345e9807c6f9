//! Tables to blobs and pages, as `memtrace_common::unwind` lays them out.
//!
//! Space is taken from the front and never given back: what the kernel half may be reading stays as it is.

use memtrace_common::unwind::{BLOB_BITS, BLOB_ROWS, PAGE_BITS, page, row};

use super::intern::Interner;
use super::table::Table;
use crate::model::VirtOffset;

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most blobs.
    pub blobs: u32,
    /// The most pages of all objects.
    pub pages: u32,
}

/// There is no room for a table. The layout is as it was, but for rules that the table has and others may have as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// All blobs are full.
    #[error("no more room for rows of unwind tables")]
    Rows,
    /// All pages are taken.
    #[error("no more room for pages of unwind tables")]
    Pages,
}

/// Rows that go to one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which blob.
    pub blob: u32,
    /// Where in it, counted in rows.
    pub offset: u32,
    /// The rows.
    pub rows: Vec<u32>,
}

/// What to write where for one table. Rules have to be written first, then rows, then pages, then mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of the first rule that is new; all from there on to the end of [`Layout::rules`] are.
    pub first_new_rule: u32,
    /// The rows, at most one chunk for each blob.
    pub chunks: Vec<Chunk>,
    /// The number of the table's first page.
    pub page_base: u32,
    /// The table's pages.
    pub pages: Vec<u64>,
    /// The object's address at which the first page begins. What a mapping subtracts from an address has to leave the
    /// distance from here.
    pub origin: VirtOffset,
}

/// Where the next table goes.
#[derive(Clone, Debug)]
pub struct Layout {
    limits: Limits,
    rules: Interner,
    /// Rows taken, counted through all blobs.
    rows: u64,
    /// Pages taken.
    pages: u32,
}

impl Layout {
    /// An empty layout.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, rules: Interner::new(), rows: 0, pages: 0 }
    }

    /// The rules so far, by number.
    #[must_use]
    pub const fn rules(&self) -> &Interner {
        &self.rules
    }

    /// How many blobs have been begun.
    #[must_use]
    pub fn blobs(&self) -> u32 {
        u32::try_from(self.rows.div_ceil(BLOB_ROWS as u64)).unwrap_or(u32::MAX)
    }

    /// How many pages are taken.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes room for `table`.
    ///
    /// # Errors
    ///
    /// [`Full`] when there is no room.
    pub fn place(&mut self, table: &Table) -> Result<Plan, Full> {
        let count = table.pages();
        let pages_end = self.pages.checked_add(count).filter(|&end| end <= self.limits.pages).ok_or(Full::Pages)?;
        let first_new_rule = u32::try_from(self.rules.rules().len()).unwrap_or(u32::MAX);
        let numbers: Vec<u32> = table.rules.iter().map(|rule| self.rules.number(*rule)).collect();

        let mut cursor = Cursor { limit: u64::from(self.limits.blobs) << BLOB_BITS, at: self.rows, chunks: Vec::new() };
        let mut pages = Vec::with_capacity(count as usize);
        let mut rest = table.rows.as_slice();
        let mut before = row(0, Interner::NOTHING);
        for number in 0..count {
            let here = rest.partition_point(|row| row.offset >> PAGE_BITS <= number);
            let (rows, others) = rest.split_at(here);
            rest = others;
            let rows: Vec<u32> = rows.iter().map(|r| row(r.offset.into(), numbers[r.rule as usize])).collect();
            let first = cursor.put(before, &rows)?;
            pages.push(page(first, u32::try_from(rows.len()).unwrap_or(u32::MAX)));
            before = rows.last().copied().unwrap_or(before);
        }
        let page_base = std::mem::replace(&mut self.pages, pages_end);
        self.rows = cursor.at;
        Ok(Plan { first_new_rule, chunks: cursor.chunks, page_base, pages, origin: table.origin() })
    }
}

/// Puts rows one behind the other.
struct Cursor {
    /// Where there is no more room.
    limit: u64,
    /// Where the next row goes.
    at: u64,
    chunks: Vec<Chunk>,
}

impl Cursor {
    /// Puts the rows of a page, with `before` in front where a blob or the table begins. Returns where they begin.
    fn put(&mut self, before: u32, rows: &[u32]) -> Result<u32, Full> {
        let left = BLOB_ROWS as u64 - self.at % BLOB_ROWS as u64;
        // A page without rows, too, has to have its place in the blob that the row before it is in.
        let needed = rows.len().max(1) as u64 + u64::from(self.chunks.is_empty());
        if self.chunks.is_empty() || self.at.is_multiple_of(BLOB_ROWS as u64) || needed > left {
            self.begin(before, if needed > left { left } else { 0 });
        }
        let first = self.at;
        let end = first + rows.len() as u64;
        let chunk = self.chunks.last_mut().filter(|_| end <= self.limit && first < self.limit).ok_or(Full::Rows)?;
        chunk.rows.extend_from_slice(rows);
        self.at = end;
        u32::try_from(first).map_err(|_| Full::Rows)
    }

    /// Begins a chunk `skipped` rows from here.
    fn begin(&mut self, before: u32, skipped: u64) {
        self.at += skipped;
        let blob = u32::try_from(self.at >> BLOB_BITS).unwrap_or(u32::MAX);
        let offset = u32::try_from(self.at % BLOB_ROWS as u64).unwrap_or(u32::MAX);
        self.chunks.push(Chunk { blob, offset, rows: vec![before] });
        self.at += 1;
    }
}

#[cfg(test)]
mod tests;
