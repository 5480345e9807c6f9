//! The tables, as user space writes them, and what was looked up lately.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{
    BLOB_ROWS, MAX_BLOBS, MAX_MAPPINGS, MAX_PAGES, MAX_PROCESSES, MAX_RULES, Mapping, Process, Rule,
};
use memtrace_common::wire::End;
use memtrace_unwind::cache::{self, Entry};
use memtrace_unwind::lookup::{self, Found, Store};
use memtrace_unwind::{Lookup, Table};

use super::returns;

/// User space writes into its own mapping of the map (include/uapi/linux/bpf.h).
const MMAPABLE: usize = 1 << 10;

#[btf_map]
static RULES: Array<Rule, MAX_RULES, MMAPABLE> = Array::new();

/// The elements of an array are rounded up to 8 bytes (`array_map_alloc`, kernel/bpf/arraymap.c), so that rows of 4 are
/// one element together; their search needs no map lookups.
#[btf_map]
static ROWS: ArrayOfMaps<Array<[u32; BLOB_ROWS], 1, MMAPABLE>, MAX_BLOBS> = ArrayOfMaps::new();

#[btf_map]
static PAGES: Array<u64, MAX_PAGES, MMAPABLE> = Array::new();

#[btf_map]
static MAPPINGS: Array<Mapping, MAX_MAPPINGS, MMAPABLE> = Array::new();

#[btf_map]
static PROCS: HashMap<u32, Process, MAX_PROCESSES> = HashMap::new();

/// A processor's programs can preempt one another between the two words of an entry, which [`cache`] sees.
#[btf_map]
static CACHE: PerCpuArray<Entry, { cache::ENTRIES }> = PerCpuArray::new();

/// The process' mappings, if there are tables for it.
#[inline(always)]
pub fn process(pid: u32) -> Option<&'static Process> {
    // SAFETY: user space replaces entries as a whole; should it do so while one is read, the old one stays readable
    // until the program ends.
    unsafe { PROCS.get(&pid) }
}

/// Forgets a process' mappings, which are gone: under them, addresses of its new program would be read wrongly.
#[inline(always)]
pub fn forget(pid: u32) {
    // There need not have been any.
    let _ = PROCS.remove(&pid);
}

/// What is known about a process' code.
pub struct Tables<'state> {
    pub process: &'state Process,
    pub last: &'state mut u32,
}

struct Maps;

impl Store for Maps {
    #[inline(always)]
    fn mapping(&self, index: u32) -> Option<&Mapping> {
        MAPPINGS.get(index)
    }

    #[inline(always)]
    fn page(&self, index: u32) -> Option<u64> {
        PAGES.get(index).copied()
    }

    #[inline(always)]
    fn blob(&self, index: u32) -> Option<&[u32; BLOB_ROWS]> {
        ROWS.get_value(index, &0)
    }
}

impl Table for Tables<'_> {
    #[inline(always)]
    fn at(&mut self, pc: u64) -> Lookup {
        let entry = CACHE.get_ptr_mut(cache::index(pc));
        let remembered = entry.and_then(|entry| cache::recall(load(entry), pc, self.process.generation));
        let number = match remembered {
            Some(number) => number,
            None => match lookup::find(&Maps, self.process, self.last, pc) {
                Found::Rule(number) => {
                    if let (Some(entry), Some(new)) = (entry, cache::remember(pc, self.process.generation, number)) {
                        store(entry, new);
                    }
                    number
                }
                Found::Generated => return Lookup::Generated,
                Found::Nothing(end) => return Lookup::Cut(end),
            },
        };
        match RULES.get(number) {
            Some(&rule) => Lookup::Rule(rule),
            None => Lookup::Cut(End::NoRow),
        }
    }

    #[inline(always)]
    fn original_return(&mut self, slot: u64) -> Option<u64> {
        returns::original(slot)
    }
}

#[inline(always)]
fn load(entry: *mut Entry) -> Entry {
    let words = entry.cast::<u64>();
    // SAFETY: the pointer is a map value's of two words.
    let first = unsafe { read_volatile(words) };
    // SAFETY: as above.
    let second = unsafe { read_volatile(words.add(1)) };
    [first, second]
}

#[inline(always)]
fn store(entry: *mut Entry, [first, second]: Entry) {
    let words = entry.cast::<u64>();
    // SAFETY: the pointer is a map value's of two words.
    unsafe { write_volatile(words, first) };
    // SAFETY: as above.
    unsafe { write_volatile(words.add(1), second) };
}
