//! Writer of tables to the BPF maps, complete or page by page.

use memtrace_host::kernel::KernelError;
use memtrace_host::kernel::unwind_maps::UnwindMaps;
use memtrace_object::eh_frame::{Chunk, Descriptions, Full, Layout, Limits, PagePlan, PageRows, Plan, Table};

use super::eviction::Space;
use super::placement::Placement;

/// Reason why a table was not placed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Table(#[from] memtrace_object::eh_frame::Error),
    #[error(transparent)]
    Full(#[from] Full),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

pub(super) struct TableWriter {
    layout: Layout,
    /// Number of rules that are in the BPF map.
    rules: usize,
}

impl TableWriter {
    pub(super) fn new(limits: Limits) -> Self {
        Self { layout: Layout::new(limits), rules: 0 }
    }

    /// Writes a complete table to free pages.
    pub(super) fn place(&mut self, maps: &mut UnwindMaps, table: &Table) -> Result<Placement, Error> {
        let plan = self.layout.place(table);
        let Plan { page_base, origin, .. } = self.write(maps, plan)?;
        Ok(Placement { page_base, pages: table.pages(), origin, code: table.code().to_vec() })
    }

    /// Reserves the pages of a table that is not built yet, and marks them as pending for the BPF programs.
    pub(super) fn reserve(&mut self, maps: &mut UnwindMaps, table: &Descriptions) -> Result<Placement, Error> {
        let pages = table.pages();
        let page_base = self.layout.reserve(pages)?;
        maps.set_pages_pending(page_base..page_base + pages)?;
        Ok(Placement { page_base, pages, origin: table.origin(), code: table.code().to_vec() })
    }

    /// Writes one page of a table with reserved pages. `number`: index of the page in the table.
    pub(super) fn place_page(
        &mut self,
        maps: &mut UnwindMaps,
        placement: &Placement,
        number: u32,
        rows: &PageRows,
    ) -> Result<(), Error> {
        let plan = self.layout.place_page(placement.page_base, rows);
        self.write_rules(maps)?;
        let PagePlan { chunks, page } = plan?;
        write_rows(maps, &chunks)?;
        Ok(maps.write_pages(placement.page_base + number, &[page])?)
    }

    /// Writes a table to its reserved pages. Afterwards none of these pages is pending, even if `table` is an error. The only
    /// exception: without space for the rows, the pages stay pending.
    pub(super) fn complete(
        &mut self,
        maps: &mut UnwindMaps,
        placement: &Placement,
        table: Result<Table, memtrace_object::eh_frame::Error>,
    ) -> Result<(), Error> {
        let written = table.map_err(Error::from).and_then(|table| {
            // Both numbers of pages come from the same call frame information, so they should agree.
            let fits = table.pages() <= placement.pages;
            let plan = if fits { self.layout.place_at(&table, placement.page_base) } else { Err(Full::Pages) };
            self.write(maps, plan).map(drop)
        });
        if !matches!(written, Err(Error::Full(_))) {
            maps.clear_pending_pages(placement.page_base..placement.page_base + placement.pages)?;
        }
        written
    }

    /// Frees the space of a table.
    pub(super) fn release(&mut self, space: Space) {
        self.layout.release(space.page_base, space.pages);
    }

    /// Returns the free share of the space for tables.
    pub(super) fn free_share(&self) -> f64 {
        self.layout.free_share()
    }

    fn write(&mut self, maps: &mut UnwindMaps, plan: Result<Plan, Full>) -> Result<Plan, Error> {
        // The rules stay written even if there is no space for the rows.
        self.write_rules(maps)?;
        let plan = plan?;
        write_rows(maps, &plan.chunks)?;
        maps.write_pages(plan.page_base, &plan.pages)?;
        Ok(plan)
    }

    /// Writes the rules that are not in the BPF map yet. The number of rules is far below 2^32.
    fn write_rules(&mut self, maps: &mut UnwindMaps) -> Result<(), KernelError> {
        let rules = self.layout.rules().rules();
        maps.write_rules(self.rules as u32, &rules[self.rules..])?;
        self.rules = rules.len();
        Ok(())
    }
}

fn write_rows(maps: &mut UnwindMaps, chunks: &[Chunk]) -> Result<(), KernelError> {
    chunks.iter().try_for_each(|chunk| maps.write_rows(chunk.blob, chunk.offset, &chunk.rows))
}
