//! The unwind tables in the kernel's maps, as user space writes them.
//!
//! What lies in them is laid out by `memtrace_common::unwind`. Rules, pages and rows are written where their owner says,
//! once, before any mapping leads to them. A process' mappings are replaced as a whole: the new ones are written to
//! places of their own, then the process is turned to them at once, and the old ones' places are used again only when no
//! program can look at them any more.
//!
//! A kernel that can be asked what a process has mapped ([`Tables::finds_mappings`]) is told no mappings, but which object
//! has which table; for objects that it does not know it asks, through [`TableRequestReader`].

mod blocks;
mod region;
mod table_request;

use std::collections::BTreeMap;

use aya::Ebpf;
use aya::maps::{ArrayOfMaps, HashMap, Map, MapData};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use memtrace_common::unwind::{BLOB_ROWS, MAPPING_STEPS, MAX_MAPPINGS, MAX_RULES, Process};
pub use memtrace_common::unwind::{
    MAX_BLOBS, MAX_PAGES, MAX_SEGMENTS, Mapping, ObjectKey, ObjectTable, Rule, Segment, mapping,
};

use self::blocks::{Block, Blocks};
use self::region::Region;
pub use self::table_request::{TableRequest, TableRequestReader};
use super::error::KernelError;
use crate::model::Pid;

/// User space may map the array (`BPF_F_MMAPABLE`, include/uapi/linux/bpf.h).
const MMAPABLE: u32 = 1 << 10;

/// The most mappings that one process can have.
pub const MAX_PROCESS_MAPPINGS: usize = 1 << MAPPING_STEPS;

/// The unwind tables of all processes.
pub struct Tables {
    rules: Region<Rule>,
    pages: Region<u64>,
    mappings: Region<Mapping>,
    rows: ArrayOfMaps<MapData, MapData>,
    blobs: BTreeMap<u32, Region<u32>>,
    processes: HashMap<MapData, u32, Plain<Process>>,
    objects: HashMap<MapData, Plain<ObjectKey>, Plain<ObjectTable>>,
    finds_mappings: bool,
    blocks: Blocks,
    /// Where each process' mappings lie.
    held: BTreeMap<Pid, Block>,
    /// Where mappings lay that were replaced, and which some program may still look at.
    retired: Vec<Block>,
    generation: u32,
}

/// An entry as a map takes it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Plain<T>(T);

// SAFETY: `Process` is `repr(C)`, made of integers only, and its asserted size leaves no padding.
unsafe impl aya::Pod for Plain<Process> {}
// SAFETY: as for `Process`.
unsafe impl aya::Pod for Plain<ObjectKey> {}
// SAFETY: as for `Process`.
unsafe impl aya::Pod for Plain<ObjectTable> {}

/// Generations that are given here; the programs give those without this bit.
const GIVEN_HERE: u32 = 1 << 31;

impl Tables {
    /// Takes the tables' maps out of the loaded object.
    pub(super) fn take(ebpf: &mut Ebpf, finds_mappings: bool) -> Result<Self, KernelError> {
        let failed = |error: aya::maps::MapError| KernelError::from_error("use the unwind tables", &error);
        Ok(Self {
            rules: array(ebpf, "RULES", MAX_RULES)?,
            pages: array(ebpf, "PAGES", MAX_PAGES)?,
            mappings: array(ebpf, "MAPPINGS", MAX_MAPPINGS)?,
            rows: take(ebpf, "ROWS")?.try_into().map_err(failed)?,
            blobs: BTreeMap::new(),
            processes: take(ebpf, "PROCS")?.try_into().map_err(failed)?,
            objects: take(ebpf, "OBJECTS")?.try_into().map_err(failed)?,
            finds_mappings,
            blocks: Blocks::new(MAX_MAPPINGS as u32),
            held: BTreeMap::new(),
            retired: Vec::new(),
            generation: 0,
        })
    }

    /// Whether the programs find mappings by themselves, and need be told of objects only.
    #[must_use]
    pub const fn finds_mappings(&self) -> bool {
        self.finds_mappings
    }

    /// From now on the object has this table, in every process.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn set_object(&mut self, object: ObjectKey, table: ObjectTable) -> Result<(), KernelError> {
        self.objects
            .insert(Plain(object), Plain(table), 0)
            .map_err(|error| KernelError::from_error("tell of an object's unwind table", &error))
    }

    /// The programs shall ask for the object again.
    pub fn forget_object(&mut self, object: ObjectKey) {
        // They may have forgotten it by themselves.
        let _ = self.objects.remove(&Plain(object));
    }

    /// Writes rules from number `first` on.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] where there are more than fit.
    pub fn write_rules(&mut self, first: u32, rules: &[Rule]) -> Result<(), KernelError> {
        self.rules.write(first, rules).ok_or_else(|| full("unwind rules"))
    }

    /// Writes pages from `first` on, counted through all objects.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] where there are more than fit.
    pub fn write_pages(&mut self, first: u32, pages: &[u64]) -> Result<(), KernelError> {
        self.pages.write(first, pages).ok_or_else(|| full("pages of code"))
    }

    /// Writes rows into the blob with that number, `offset` rows behind its beginning; makes the blob if it is new.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] where there are more than fit; what the kernel said when it makes the blob.
    pub fn write_rows(&mut self, blob: u32, offset: u32, rows: &[u32]) -> Result<(), KernelError> {
        self.blob(blob)?.write(offset, rows).ok_or_else(|| full("unwind rows"))
    }

    fn blob(&mut self, number: u32) -> Result<&mut Region<u32>, KernelError> {
        if number as usize >= MAX_BLOBS {
            return Err(full("unwind rows"));
        }
        if !self.blobs.contains_key(&number) {
            let failed = |error| KernelError::from_error("make room for unwind rows", &error);
            let bytes = size_of::<[u32; BLOB_ROWS]>() as u32;
            let definition = aya_obj::Map::new_from_params(BPF_MAP_TYPE_ARRAY as u32, 4, bytes, 1, MMAPABLE);
            let map = MapData::create(definition, "memtrace_rows", None).map_err(failed)?;
            let blob = region(map, BLOB_ROWS)?;
            self.rows.set(number, blob.map(), 0).map_err(failed)?;
            self.blobs.insert(number, blob);
        }
        self.blobs.get_mut(&number).ok_or_else(|| full("unwind rows"))
    }

    /// From now on the process has these mappings and no others. Which of the old and the new ones a program that runs
    /// now sees is open, but it sees either all of the one or all of the other.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] where the process has more than [`MAX_PROCESS_MAPPINGS`], or all processes together more
    /// than fit; then it keeps what it had.
    pub fn set_process(&mut self, pid: Pid, mappings: &[Mapping]) -> Result<(), KernelError> {
        if mappings.len() > MAX_PROCESS_MAPPINGS {
            return Err(full("mappings of one process"));
        }
        let mut mappings = mappings.to_vec();
        mappings.sort_unstable_by_key(|mapping| mapping.begin);
        let block = self.make_room(mappings.len() as u32)?;
        let written = self.mappings.write(block.first, &mappings);
        self.generation = self.generation.wrapping_add(1) | GIVEN_HERE;
        let Block { first: base, count } = block;
        let process = Process { base, count, generation: self.generation, code_pages: 0 };
        let told = written.ok_or_else(|| full("mappings")).and_then(|()| {
            let told = self.processes.insert(pid.0, Plain(process), 0);
            told.map_err(|error| KernelError::from_error("tell of a process' mappings", &error))
        });
        match told {
            Ok(()) => self.retired.extend(self.held.insert(pid, block)),
            Err(_) => self.blocks.give(block),
        }
        told
    }

    /// From now on the process' stacks are not walked by tables.
    pub fn drop_process(&mut self, pid: Pid) {
        // The kernel half itself forgets a process that runs a new program.
        let _ = self.processes.remove(&pid.0);
        self.retired.extend(self.held.remove(&pid));
    }

    /// Waits until no program looks at what was replaced before.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn wait(&mut self) -> Result<(), KernelError> {
        self.blob(0)?;
        let Some(blob) = self.blobs.get(&0) else { return Ok(()) };
        // A change to a map of maps, though it changes nothing, returns when every program that runs now has ended
        // (`maybe_wait_bpf_programs`, kernel/bpf/syscall.c).
        self.rows.set(0, blob.map(), 0).map_err(|error| KernelError::from_error("wait for running programs", &error))
    }

    fn make_room(&mut self, count: u32) -> Result<Block, KernelError> {
        if let Some(block) = self.blocks.take(count) {
            return Ok(block);
        }
        self.reclaim()?;
        self.blocks.take(count).ok_or_else(|| full("mappings"))
    }

    /// Uses the places of replaced mappings again. A process that was forked has those of its parent at that time.
    fn reclaim(&mut self) -> Result<(), KernelError> {
        self.wait()?;
        let mut used = Vec::new();
        for entry in &self.processes {
            let (_, Plain(process)) =
                entry.map_err(|error| KernelError::from_error("look at the processes' mappings", &error))?;
            used.push(process.base);
        }
        let (kept, free) = std::mem::take(&mut self.retired).into_iter().partition(|block| used.contains(&block.first));
        self.retired = kept;
        let free: Vec<Block> = free;
        free.into_iter().for_each(|block| self.blocks.give(block));
        Ok(())
    }
}

fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, KernelError> {
    ebpf.take_map(name).ok_or_else(|| missing(name))
}

fn array<T: Copy>(ebpf: &mut Ebpf, name: &str, entries: usize) -> Result<Region<T>, KernelError> {
    match take(ebpf, name)? {
        Map::Array(map) => region(map, entries),
        _ => Err(missing(name)),
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

fn missing(name: &str) -> KernelError {
    KernelError::Failed { action: format!("use {name}"), reason: String::from("the kernel half does not have it") }
}

#[cfg(test)]
mod tests;
