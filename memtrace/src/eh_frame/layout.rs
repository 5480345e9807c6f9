//! Assignment of tables to the blobs and pages of `memtrace_common::unwind`.
//!
//! Space is allocated from the front and never freed: BPF programs may be reading it.

use memtrace_common::unwind::{BLOB_BITS, BLOB_ROWS, PAGE_BITS, page, row};

use super::intern::Interner;
use super::table::Table;
use crate::model::VirtOffset;

/// Capacity of the BPF maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of blobs.
    pub blobs: u32,
    /// Maximum number of table pages of all objects.
    pub pages: u32,
}

/// The maps are full. The layout is unchanged except for interned rules of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// All blobs are full.
    #[error("no space for rows of unwind tables")]
    Rows,
    /// All table pages are in use.
    #[error("no space for pages of unwind tables")]
    Pages,
}

/// Contiguous rows within one blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Index of the blob.
    pub blob: u32,
    /// Offset in the blob, in rows.
    pub offset: u32,
    /// The rows.
    pub rows: Vec<u32>,
}

/// Map writes for one table. Rules must be written first, then rows, then pages, then mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rows, at most one chunk per blob.
    pub chunks: Vec<Chunk>,
    /// Number of the table's first page.
    pub page_base: u32,
    /// The table's pages.
    pub pages: Vec<u64>,
    /// Address within the object at which the first page begins. A mapping's bias must map addresses to offsets from here.
    pub origin: VirtOffset,
}

/// Allocator of blobs and pages.
#[derive(Clone, Debug)]
pub struct Layout {
    limits: Limits,
    rules: Interner,
    /// Allocated rows, counted through all blobs.
    rows: u64,
    /// Allocated pages.
    pages: u32,
}

impl Layout {
    /// Creates an empty layout.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, rules: Interner::new(), rows: 0, pages: 0 }
    }

    /// All rules by number.
    #[must_use]
    pub const fn rules(&self) -> &Interner {
        &self.rules
    }

    /// Number of blobs in use.
    #[must_use]
    pub fn blobs(&self) -> u32 {
        u32::try_from(self.rows.div_ceil(BLOB_ROWS as u64)).unwrap_or(u32::MAX)
    }

    /// Number of pages in use.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Allocates space for `table`.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is not enough.
    pub fn place(&mut self, table: &Table) -> Result<Plan, Full> {
        let count = table.pages();
        let pages_end = self.pages.checked_add(count).filter(|&end| end <= self.limits.pages).ok_or(Full::Pages)?;
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
            let first = cursor.append(before, &rows)?;
            pages.push(page(first, u32::try_from(rows.len()).unwrap_or(u32::MAX)));
            before = rows.last().copied().unwrap_or(before);
        }
        let page_base = std::mem::replace(&mut self.pages, pages_end);
        self.rows = cursor.at;
        Ok(Plan { chunks: cursor.chunks, page_base, pages, origin: table.origin() })
    }
}

/// Appends rows to blobs.
struct Cursor {
    /// End of the last blob.
    limit: u64,
    /// Position of the next row.
    at: u64,
    chunks: Vec<Chunk>,
}

impl Cursor {
    /// Appends the rows of a page, after the row `before` if a blob or the table begins here. Returns their position.
    fn append(&mut self, before: u32, rows: &[u32]) -> Result<u32, Full> {
        let left = BLOB_ROWS as u64 - self.at % BLOB_ROWS as u64;
        // A page without rows also needs a position in the blob of the row before it.
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

    /// Begins a chunk after `skipped` unused rows.
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
