//! BPF maps with unwind tables, which user space writes. `memtrace_common::unwind` defines their layout.
//!
//! The caller chooses the positions of rules, pages and rows, and writes them before the table of an object refers to them. The
//! BPF programs request the tables of unknown objects through [`TableRequestReader`].

mod region;
mod table_request;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use aya::maps::{ArrayOfMaps, HashMap, Map, MapData};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use memtrace_common::unwind::{BLOB_ROWS, MAX_RULES, PENDING_PAGE, Process};
pub use memtrace_common::unwind::{MAX_SEGMENTS, Mapping, ObjectKey, ObjectTable, PAGE_BITS, Rule, Segment, mapping};

use memtrace_model::Pid;
use memtrace_unwind::lookup::Store;

use self::region::Region;
pub use self::table_request::{TableRequest, TableRequestReader};
use super::bpf::Bpf;
use super::error::KernelError;
use super::map_sizes::MapSizes;
use super::wire_type::MapEntry;

/// `BPF_F_MMAPABLE` (include/uapi/linux/bpf.h): user space may map the array.
const MMAPABLE: u32 = 1 << 10;

/// Unwind tables of all processes.
pub struct UnwindMaps {
    rules: Region<Rule>,
    pages: Region<u64>,
    rows: ArrayOfMaps<MapData, MapData>,
    blobs: BTreeMap<u32, Region<u32>>,
    processes: HashMap<MapData, u32, MapEntry<Process>>,
    objects: HashMap<MapData, MapEntry<ObjectKey>, MapEntry<ObjectTable>>,
    sizes: MapSizes,
}

impl UnwindMaps {
    /// Takes the maps out of the loaded object.
    pub(super) fn take(bpf: &mut Bpf, sizes: MapSizes) -> Result<Self, KernelError> {
        let failed = |error: aya::maps::MapError| KernelError::from_error("use the unwind tables", &error);
        Ok(Self {
            rules: array(bpf, "RULES", MAX_RULES)?,
            pages: array(bpf, "PAGES", sizes.entries("PAGES") as usize)?,
            rows: bpf.take_map("ROWS")?.try_into().map_err(failed)?,
            blobs: BTreeMap::new(),
            processes: bpf.take_map("PROCS")?.try_into().map_err(failed)?,
            objects: bpf.take_map("OBJECTS")?.try_into().map_err(failed)?,
            sizes,
        })
    }

    /// Returns the maximum number of code pages.
    #[must_use]
    pub fn max_pages(&self) -> u32 {
        self.sizes.entries("PAGES")
    }

    /// Returns the maximum number of blobs of rows.
    #[must_use]
    pub const fn max_blobs(&self) -> u32 {
        self.sizes.rows
    }

    /// Sets the table of an object, for all processes.
    ///
    /// # Errors
    ///
    /// Errors of the map update.
    pub fn set_object(&mut self, object: ObjectKey, table: ObjectTable) -> Result<(), KernelError> {
        self.objects
            .insert(MapEntry(object), MapEntry(table), 0)
            .map_err(|error| KernelError::from_error("set the unwind table of an object", &error))
    }

    /// Removes the table of an object. The BPF programs then request the table again.
    pub fn forget_object(&mut self, object: ObjectKey) {
        // The kernel may have evicted the object: the map is an LRU hash table.
        let _ = self.objects.remove(&MapEntry(object));
    }

    /// Writes rules from index `first` on.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map is full.
    pub fn write_rules(&mut self, first: u32, rules: &[Rule]) -> Result<(), KernelError> {
        self.rules.write(first, rules).ok_or_else(|| full("unwind rules"))
    }

    /// Writes entries of the page table of the unwinder, from index `first` on. All objects share one index space. Write the
    /// rows of a page first, unless the page is pending or empty: a BPF program may read a page as soon as it is written.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map is full.
    pub fn write_pages(&mut self, first: u32, pages: &[u64]) -> Result<(), KernelError> {
        fence(Ordering::Release);
        self.pages.write(first, pages).ok_or_else(|| full("code pages"))
    }

    /// Marks `pages` as pending: their rows are written later.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map is full.
    pub fn set_pages_pending(&mut self, pages: Range<u32>) -> Result<(), KernelError> {
        self.write_pages(pages.start, &vec![PENDING_PAGE; pages.len()])
    }

    /// Replaces pages that are still pending by empty pages.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map is full.
    pub fn clear_pending_pages(&mut self, mut pages: Range<u32>) -> Result<(), KernelError> {
        pages.try_for_each(|page| if self.is_page_pending(page) { self.write_pages(page, &[0]) } else { Ok(()) })
    }

    /// Returns true if the rows of a page are not written yet.
    #[must_use]
    pub fn is_page_pending(&self, page: u32) -> bool {
        self.pages.get(page) == Some(PENDING_PAGE)
    }

    /// Writes rows at index `offset` of a blob. The first write to a blob creates it.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the blob is full or there are too many blobs. Errors of the creation of a blob.
    pub fn write_rows(&mut self, blob: u32, offset: u32, rows: &[u32]) -> Result<(), KernelError> {
        self.writable_blob(blob)?.write(offset, rows).ok_or_else(|| full("unwind rows"))
    }

    /// Returns the rule with this number.
    #[must_use]
    pub fn rule(&self, number: u32) -> Option<Rule> {
        self.rules.get(number)
    }

    fn writable_blob(&mut self, number: u32) -> Result<&mut Region<u32>, KernelError> {
        if number >= self.sizes.rows {
            return Err(full("unwind rows"));
        }
        if !self.blobs.contains_key(&number) {
            let failed = |error| KernelError::from_error("create a map of unwind rows", &error);
            let bytes = size_of::<[u32; BLOB_ROWS]>() as u32;
            let definition = aya_obj::Map::new_from_params(BPF_MAP_TYPE_ARRAY as u32, 4, bytes, 1, MMAPABLE);
            let map = MapData::create(definition, "memtrace_rows", None).map_err(failed)?;
            let blob = region(map, BLOB_ROWS)?;
            self.rows.set(number, blob.map(), 0).map_err(failed)?;
            self.blobs.insert(number, blob);
        }
        self.blobs.get_mut(&number).ok_or_else(|| full("unwind rows"))
    }

    /// Invalidates the mappings of a process that the BPF programs have cached.
    pub fn forget_process(&mut self, pid: Pid) {
        // The BPF programs may have removed the process, as they do at an exec.
        let _ = self.processes.remove(&pid.0);
    }

    /// Waits until all BPF programs that were running at the call have ended.
    ///
    /// # Errors
    ///
    /// Errors of the map update.
    pub fn wait(&mut self) -> Result<(), KernelError> {
        self.writable_blob(0)?;
        let Some(blob) = self.blobs.get(&0) else { return Ok(()) };
        // An update of a map of maps, even without a change, returns after all running programs have ended
        // (`maybe_wait_bpf_programs`, kernel/bpf/syscall.c).
        self.rows
            .set(0, blob.map(), 0)
            .map_err(|error| KernelError::from_error("wait for running BPF programs", &error))
    }
}

/// The tables, for the lookup code that user space shares with the BPF programs.
impl Store for UnwindMaps {
    fn page(&self, index: u32) -> Option<u64> {
        self.pages.get(index)
    }

    fn blob(&self, index: u32) -> Option<&[u32; BLOB_ROWS]> {
        self.blobs.get(&index)?.as_array()
    }
}

fn array<T: Copy>(bpf: &mut Bpf, name: &str, entries: usize) -> Result<Region<T>, KernelError> {
    match bpf.take_map(name)? {
        Map::Array(map) => region(map, entries),
        _ => Err(KernelError::missing(name)),
    }
}

fn region<T: Copy>(map: MapData, entries: usize) -> Result<Region<T>, KernelError> {
    Region::new(map, entries).map_err(|error| KernelError::from_error("map the unwind tables", &error))
}

fn full(what: &str) -> KernelError {
    KernelError::Failed {
        action: String::from("write the unwind tables"),
        reason: format!("there are too many {what}"),
    }
}

#[cfg(test)]
mod tests;
