//! Tables of objects in the BPF maps, complete or in part.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_host::kernel::unwind_maps::{self, PAGE_BITS, UnwindMaps, mapping};
use memtrace_model::{AbsAddr, Mapping, Object, printable};
use memtrace_object::eh_frame::{self, Descriptions, Limits, Table};

use super::eviction::Space;
use super::placement::Placement;
use super::table_writer::{Error, TableWriter};

/// Name of the vDSO in the mappings of every process.
pub(super) const VDSO: &str = "[vdso]";

/// Tables in the BPF maps, by object handle. There is at most one entry for each open file.
pub(super) struct PlacedTables {
    writer: TableWriter,
    /// Positions of the tables; `None` if an object has no table.
    placements: HashMap<PathBuf, Option<Placement>>,
    /// Frame descriptions of the tables in construction that have a position. A page that a walk needs is made from
    /// the descriptions, and published before the table is complete. `None` if no more pages can be made.
    partial: HashMap<PathBuf, Option<Descriptions>>,
}

/// Code at an address, for walks in user space.
pub(super) enum PlacedCode {
    /// The mapping, with the position of its table.
    Mapping(unwind_maps::Mapping),
    /// The table of this object is not published yet.
    Waiting(Arc<Object>),
    /// The file of the code is not known.
    Unknown,
}

impl PlacedTables {
    pub(super) fn new(limits: Limits) -> Self {
        Self { writer: TableWriter::new(limits), placements: HashMap::new(), partial: HashMap::new() }
    }

    /// Returns true if the object `handle` has an entry: a table, a part of a table, or the fact that it has no table.
    pub(super) fn contains(&self, handle: &Path) -> bool {
        self.placements.contains_key(handle)
    }

    /// Returns the position of the table of the object `handle`.
    pub(super) fn get(&self, handle: &Path) -> Option<&Placement> {
        self.placements.get(handle)?.as_ref()
    }

    /// Returns true if the object `handle` has a complete table.
    pub(super) fn has_whole_table(&self, handle: &Path) -> bool {
        self.get(handle).is_some() && !self.partial.contains_key(handle)
    }

    /// Records that the object `handle` has no table.
    pub(super) fn insert_without_table(&mut self, handle: PathBuf) {
        self.placements.insert(handle, None);
    }

    /// Places the table of the object `handle`, or records that it has none.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there is no space at the moment.
    pub(super) fn insert(
        &mut self,
        maps: &mut UnwindMaps,
        handle: PathBuf,
        table: Result<Table, eh_frame::Error>,
    ) -> Result<(), Error> {
        let reserved = if self.partial.contains_key(&handle) { self.get(&handle) } else { None };
        let placed = match reserved.cloned() {
            // Without space for the whole table, there may still be space for single pages.
            Some(reserved) => match self.writer.complete(maps, &reserved, table) {
                Err(Error::Full(_)) => return Ok(()),
                written => written.map(|()| reserved),
            },
            None => table.map_err(Error::from).and_then(|table| self.writer.place(maps, &table)),
        };
        match &placed {
            Ok(placement) => log::debug!("{}: unwind table of {} pages", printable(&handle), placement.pages),
            Err(error) => log::debug!("{}: no unwind table: {error}", printable(&handle)),
        }
        if matches!(placed, Err(Error::Full(_))) {
            return placed.map(drop);
        }
        self.partial.remove(&handle);
        self.placements.insert(handle, placed.ok());
        Ok(())
    }

    /// Reserves the pages of a table in construction: the table of the object `handle`. Returns false if single pages
    /// cannot be published.
    pub(super) fn insert_partial(&mut self, maps: &mut UnwindMaps, handle: &Path, descriptions: Descriptions) -> bool {
        if self.contains(handle) {
            return false;
        }
        match self.writer.reserve(maps, &descriptions) {
            Ok(placement) => {
                self.placements.insert(handle.to_owned(), Some(placement));
                self.partial.insert(handle.to_owned(), Some(descriptions));
                true
            }
            Err(error) => {
                log::debug!("{}: no pages before its unwind table: {error}", printable(&handle));
                false
            }
        }
    }

    /// Publishes the page for the code at `address` in `mapping`, from a table in construction. Returns false if the
    /// page can be published only with the complete table.
    pub(super) fn add_page(&mut self, maps: &mut UnwindMaps, mapping: &Mapping, address: AbsAddr) -> bool {
        let Some(handle) = mapping.object.as_ref().and_then(|object| object.handle.as_ref()) else { return false };
        let Some(partial) = self.partial.get_mut(handle) else { return false };
        let mut add = || {
            let placement = self.placements.get(handle)?.as_ref()?;
            let distance = address.0.wrapping_sub(placement.bias(mapping)?);
            let number = u32::try_from(distance >> PAGE_BITS).ok().filter(|&number| number < placement.pages)?;
            if !maps.is_page_pending(placement.page_base + number) {
                return Some(());
            }
            let rows = partial.as_mut()?.page(number)?;
            let written = self.writer.place_page(maps, placement, number, &rows);
            written.inspect_err(|error| log::debug!("{}: {error}", printable(handle))).ok()
        };
        let is_added = add().is_some();
        if !is_added {
            *partial = None;
        }
        is_added
    }

    /// Removes the entry of the object `handle`, and returns the position of its table. The space
    /// of the table is not free yet.
    pub(super) fn remove(&mut self, handle: &Path) -> Option<Placement> {
        self.partial.remove(handle);
        self.placements.remove(handle).flatten()
    }

    /// Frees the space of a table that was removed. No BPF program may be reading it.
    pub(super) fn release(&mut self, space: Space) {
        self.writer.release(space);
    }

    /// Returns the free share of the space.
    pub(super) fn free_share(&self) -> f64 {
        self.writer.free_share()
    }

    /// Converts a mapping to its form in the BPF maps.
    pub(super) fn convert(&self, mapping: &Mapping) -> unwind_maps::Mapping {
        let (begin, end) = (mapping.start.0, mapping.end.0);
        let kind = |kind: u8| u32::from(kind) << 24;
        let without = |pages_and_kind| unwind_maps::Mapping { begin, end, pages_and_kind, ..Default::default() };
        let Some(object) = &mapping.object else { return without(kind(mapping::GENERATED)) };
        // The vDSO has no file, so its table is stored under its name.
        let handle = object.handle.as_deref().or_else(|| Some(&*object.path).filter(|path| *path == Path::new(VDSO)));
        let placement = handle.and_then(|handle| self.get(handle));
        match placement.and_then(|placement| Some((placement, placement.bias(mapping)?))) {
            Some((placement, bias)) => unwind_maps::Mapping {
                begin,
                end,
                bias,
                page_base: placement.page_base,
                pages_and_kind: placement.pages | kind(mapping::TABLE),
            },
            None => without(kind(mapping::UNUSABLE)),
        }
    }

    /// Returns true if walks in the object `handle` can be finished: its table is published, single pages of it can be
    /// published on demand, or the object has no table.
    pub(super) fn is_placed(&self, handle: &Path) -> bool {
        self.contains(handle) && self.partial.get(handle).is_none_or(Option::is_some)
    }

    /// Returns the code of `mapping` with the position of its table.
    pub(super) fn placed_code(&self, mapping: &Mapping) -> PlacedCode {
        match &mapping.object {
            Some(object) if object.handle.as_ref().is_some_and(|handle| !self.is_placed(handle)) => {
                PlacedCode::Waiting(Arc::clone(object))
            }
            Some(object) if object.handle.is_none() && object.path != Path::new(VDSO) => PlacedCode::Unknown,
            _ => PlacedCode::Mapping(self.convert(mapping)),
        }
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::FileOffset;

    use super::*;

    #[test]
    fn code_without_a_file_is_generated_and_of_an_unread_file_unusable() {
        let object = Object { path: PathBuf::from("/lib/libx.so"), handle: None, build_id: None, root: None };
        let mapping = |object| Mapping { start: AbsAddr(0x1000), end: AbsAddr(0x2000), offset: FileOffset(0), object };
        let kind = |one| PlacedTables::new(Limits { blobs: 1, pages: 1 }).convert(&one).pages_and_kind >> 24;
        assert_eq!(kind(mapping(None)), u32::from(mapping::GENERATED));
        assert_eq!(kind(mapping(Some(Arc::new(object)))), u32::from(mapping::UNUSABLE));
    }
}
