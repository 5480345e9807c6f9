//! Assignment of tables to the blobs and pages of `memtrace_common::unwind`.
//!
//! Allocation takes the first free space that is large enough. A space can be freed when no BPF program reads it any more.

use memtrace_common::unwind::{BLOB_BITS, BLOB_ROWS, PAGE_BITS, page, row};
use memtrace_model::VirtOffset;
use rustc_hash::FxHashMap;

use super::descriptions::PageRows;
use super::free_entries::{EntryBlock, FreeEntries};
use super::intern::Interner;
use super::table::Table;

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
    /// The free rows of all blobs do not suffice.
    #[error("no space for rows of unwind tables")]
    Rows,
    /// There are not enough contiguous free table pages.
    #[error("no space for pages of unwind tables")]
    Pages,
}

/// Contiguous rows within one blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Index of the blob.
    pub blob: u32,
    /// Index of the first row in the blob.
    pub offset: u32,
    /// Encoded rows.
    pub rows: Vec<u32>,
}

/// Map writes for one table. Rules must be written first, then rows, then pages, then mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rows of the table, one chunk for each free block that they use.
    pub chunks: Vec<Chunk>,
    /// Number of the table's first page in the map of pages.
    pub page_base: u32,
    /// Encoded pages of the table.
    pub pages: Vec<u64>,
    /// Address of the first page in the object. A mapping's bias must convert addresses to offsets from this address.
    pub origin: VirtOffset,
}

/// Map writes for one page. Rules must be written first, then the rows, then the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagePlan {
    /// Rows of the page.
    pub chunks: Vec<Chunk>,
    /// Encoded page.
    pub page: u64,
}

/// Allocator of rows in blobs and of pages.
#[derive(Clone, Debug)]
pub struct Layout {
    limits: Limits,
    rules: Interner,
    /// Free rows. Rows are numbered consecutively across all blobs.
    rows: FreeEntries,
    pages: FreeEntries,
    /// Rows of each table, by the number of its first page.
    rows_of: FxHashMap<u32, Vec<EntryBlock>>,
}

impl Layout {
    /// Creates an empty layout.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let rows = FreeEntries::new(limits.blobs << BLOB_BITS);
        let pages = FreeEntries::new(limits.pages);
        Self { limits, rules: Interner::new(), rows, pages, rows_of: FxHashMap::default() }
    }

    /// Returns the rules of all tables, by number.
    #[must_use]
    pub const fn rules(&self) -> &Interner {
        &self.rules
    }

    /// Returns the free share of the rows or the free share of the pages, whichever is smaller, from 0 to 1.
    #[must_use]
    pub fn free_share(&self) -> f64 {
        let share = |free: u32, all: u32| f64::from(free) / f64::from(all.max(1));
        share(self.rows.count(), self.limits.blobs << BLOB_BITS).min(share(self.pages.count(), self.limits.pages))
    }

    /// Frees the `pages` pages of a table from `page_base` on, and its rows. No BPF program may be reading them.
    pub fn release(&mut self, page_base: u32, pages: u32) {
        if pages > 0 {
            self.pages.release(EntryBlock { first: page_base, count: pages });
            let rows = self.rows_of.remove(&page_base).unwrap_or_default();
            rows.into_iter().for_each(|block| self.rows.release(block));
        }
    }

    /// Allocates space for `table`.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is not enough space.
    pub fn place(&mut self, table: &Table) -> Result<Plan, Full> {
        let (chunks, pages) = self.plan(table)?;
        let page_base = self.reserve(table.pages())?;
        self.take_rows(page_base, &chunks);
        Ok(Plan { chunks, page_base, pages, origin: table.origin() })
    }

    /// Reserves `count` pages for a table that is not built yet. Returns the number of the first one.
    ///
    /// # Errors
    ///
    /// [`Full::Pages`] if there are not enough contiguous free pages.
    pub fn reserve(&mut self, count: u32) -> Result<u32, Full> {
        match count {
            0 => Ok(0),
            _ => self.pages.allocate(count).map(|block| block.first).ok_or(Full::Pages),
        }
    }

    /// Allocates space for the rows of one page of a table. [`Self::reserve`] has reserved the table's pages from
    /// `page_base` on.
    ///
    /// # Errors
    ///
    /// [`Full::Rows`] if there is not enough space.
    pub fn place_page(&mut self, page_base: u32, page_rows: &PageRows) -> Result<PagePlan, Full> {
        let before = row(0, self.rules.number(page_rows.before));
        let rows = page_rows.rows.iter().map(|&(offset, rule)| row(offset.into(), self.rules.number(rule)));
        let rows: Vec<u32> = rows.collect();
        let mut cursor = Cursor::new(&self.rows);
        let first = cursor.append(before, &rows)?;
        let chunks = cursor.finish();
        self.take_rows(page_base, &chunks);
        Ok(PagePlan { chunks, page: page(first, u32::try_from(rows.len()).unwrap_or(u32::MAX)) })
    }

    /// Allocates space for the rows of `table`. [`Self::reserve`] has reserved its pages from `page_base` on.
    ///
    /// # Errors
    ///
    /// [`Full::Rows`] if there is not enough space.
    pub fn place_at(&mut self, table: &Table, page_base: u32) -> Result<Plan, Full> {
        let (chunks, pages) = self.plan(table)?;
        self.take_rows(page_base, &chunks);
        Ok(Plan { chunks, page_base, pages, origin: table.origin() })
    }

    /// Returns the rows of `table`, in chunks at free positions, and its pages. Does not allocate the rows yet.
    fn plan(&mut self, table: &Table) -> Result<(Vec<Chunk>, Vec<u64>), Full> {
        let count = table.pages();
        let numbers: Vec<u32> = table.rules.iter().map(|rule| self.rules.number(*rule)).collect();

        let mut cursor = Cursor::new(&self.rows);
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
        Ok((cursor.finish(), pages))
    }

    /// Records that the table at `page_base` has the rows of `chunks`.
    fn take_rows(&mut self, page_base: u32, chunks: &[Chunk]) {
        for chunk in chunks {
            let count = u32::try_from(chunk.rows.len()).unwrap_or(u32::MAX);
            let block = EntryBlock { first: chunk.blob << BLOB_BITS | chunk.offset, count };
            self.rows.take(block);
            self.rows_of.entry(page_base).or_default().push(block);
        }
    }
}

/// Writer of rows to free blocks.
struct Cursor<I> {
    /// Free parts of blobs that follow the current part.
    free: I,
    /// Number of the next row.
    at: u32,
    /// Number after the last row of the current part.
    end: u32,
    chunks: Vec<Chunk>,
}

impl<'layout> Cursor<Box<dyn Iterator<Item = EntryBlock> + 'layout>> {
    fn new(free: &'layout FreeEntries) -> Self {
        let free = Box::new(free.blocks().flat_map(parts_of_blobs));
        Self { free, at: 0, end: 0, chunks: Vec::new() }
    }
}

impl<I: Iterator<Item = EntryBlock>> Cursor<I> {
    /// Appends the rows of a page, and returns the number of the first row. If the rows begin a new free part, the row
    /// `before` precedes them there.
    fn append(&mut self, before: u32, rows: &[u32]) -> Result<u32, Full> {
        let count = u32::try_from(rows.len()).map_err(|_| Full::Rows)?;
        // Even a page without rows needs a position in the same blob as the row before it.
        if count.max(1) > self.end - self.at {
            self.begin(before, count.max(1) + 1)?;
        }
        let first = self.at;
        self.chunks.last_mut().ok_or(Full::Rows)?.rows.extend_from_slice(rows);
        self.at += count;
        Ok(first)
    }

    fn finish(self) -> Vec<Chunk> {
        self.chunks
    }

    /// Begins a chunk in the next free part that has at least `needed` rows. The first row is `before`.
    fn begin(&mut self, before: u32, needed: u32) -> Result<(), Full> {
        let EntryBlock { first, count } = self.free.find(|part| part.count >= needed).ok_or(Full::Rows)?;
        self.chunks.push(Chunk { blob: first >> BLOB_BITS, offset: first % BLOB_ROWS as u32, rows: vec![before] });
        (self.at, self.end) = (first + 1, first + count);
        Ok(())
    }
}

/// Divides a block of rows at the borders of blobs.
fn parts_of_blobs(block: EntryBlock) -> impl Iterator<Item = EntryBlock> {
    let EntryBlock { first, count } = block;
    let end = first + count;
    (first >> BLOB_BITS..=(end - 1) >> BLOB_BITS).map(move |blob| {
        let (begin, end) = (first.max(blob << BLOB_BITS), end.min((blob + 1) << BLOB_BITS));
        EntryBlock { first: begin, count: end - begin }
    })
}

#[cfg(test)]
mod tests;
