//! Unwind tables, as user space writes them, and a cache of look-ups.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::btf_maps::{Array, ArrayOfMaps, PerCpuArray};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{BLOB_ROWS, MAX_BLOBS, MAX_MAPPINGS, MAX_PAGES, MAX_RULES, Mapping, Rule};
use memtrace_common::wire::End;
use memtrace_unwind::cache::{self, Entry};
use memtrace_unwind::lookup::{self, RuleSearch, Store};
use memtrace_unwind::{Lookup, Table};

use super::{return_instances, vma};
use crate::scratch::{Scratch, WalkState, copy_mapping};

/// `BPF_F_MMAPABLE`: user space maps the map into its memory (include/uapi/linux/bpf.h).
const MMAPABLE: usize = 1 << 10;

#[btf_map]
static RULES: Array<Rule, MAX_RULES, MMAPABLE> = Array::new();

/// Elements of an array are rounded up to 8 bytes (`array_map_alloc`, kernel/bpf/arraymap.c), so all rows of 4 bytes
/// are one element. Their search needs no map look-ups.
#[btf_map]
static ROWS: ArrayOfMaps<Array<[u32; BLOB_ROWS], 1, MMAPABLE>, MAX_BLOBS> = ArrayOfMaps::new();

#[btf_map]
static PAGES: Array<u64, MAX_PAGES, MMAPABLE> = Array::new();

#[btf_map]
static MAPPINGS: Array<Mapping, MAX_MAPPINGS, MMAPABLE> = Array::new();

/// Programs on a CPU can preempt one another between the two words of an entry, which [`cache`] detects.
#[btf_map]
static CACHE: PerCpuArray<Entry, { cache::ENTRIES }> = PerCpuArray::new();

/// The unwind tables for the walk in the scratch memory of `slot`.
pub struct Tables {
    pub slot: u32,
    pub generation: u32,
}

struct Maps;

impl Store for Maps {
    #[inline(always)]
    fn page(&self, index: u32) -> Option<u64> {
        PAGES.get(index).copied()
    }

    #[inline(always)]
    fn blob(&self, index: u32) -> Option<&[u32; BLOB_ROWS]> {
        ROWS.get_value(index, &0)
    }
}

/// Result of [`unwind_find_rule`] in generated code. Other results are the number of a rule or, above 32 bits, an
/// [`End`].
///
/// It is one word that always has a value: with a `Result` the compiler could save an uninitialised error, which the
/// verifier refuses.
const GENERATED: u64 = u64::MAX;

/// Finds the rule for `pc`. It is a global function, as the step is.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_find_rule(slot: u32, pc: u64) -> u64 {
    const NO_MAPPING: u64 = (End::NoMapping as u64) << 32;
    let Some(scratch) = Scratch::get(slot) else { return NO_MAPPING };
    let WalkState { process, mapping, .. } = &mut scratch.walk;
    if !lookup::holds(mapping, pc) {
        if process.count == 0 {
            let end = vma::unwind_find_mapping(slot, pc);
            if end != 0 {
                return end << 32;
            }
        } else {
            match lookup::search(process, pc, |index| MAPPINGS.get(index)) {
                Some(found) => copy_mapping(mapping, found),
                None => return NO_MAPPING,
            }
        }
    }
    match Scratch::get(slot) {
        Some(scratch) => encode(lookup::find(&Maps, &scratch.walk.mapping, pc)),
        None => NO_MAPPING,
    }
}

#[inline(always)]
fn encode(found: RuleSearch) -> u64 {
    match found {
        RuleSearch::Rule(number) => number as u64,
        RuleSearch::Generated => GENERATED,
        RuleSearch::NoRule(end) => (end as u64) << 32,
    }
}

impl Table for Tables {
    #[inline(always)]
    fn lookup(&mut self, pc: u64) -> Lookup {
        let entry = CACHE.get_ptr_mut(cache::index(pc));
        let cached = entry.and_then(|entry| cache::decode(load(entry), pc, self.generation));
        let found = match cached {
            Some(number) => number as u64,
            None => {
                let found = unwind_find_rule(self.slot, pc);
                if let Some(entry) = entry
                    && found <= u32::MAX as u64
                    && let Some(new) = cache::encode(pc, self.generation, found as u32)
                {
                    store(entry, new);
                }
                found
            }
        };
        if found == GENERATED {
            return Lookup::GENERATED;
        }
        if found <= u32::MAX as u64
            && let Some(&rule) = RULES.get(found as u32)
        {
            return Lookup::rule(rule);
        }
        Lookup::end(decode_end(found >> 32))
    }

    #[inline(always)]
    fn original_return(&mut self, slot: u64) -> Option<u64> {
        return_instances::original(slot)
    }
}

/// Decodes the ends that a look-up can have.
#[inline(always)]
fn decode_end(raw: u64) -> End {
    const NO_MAPPING: u64 = End::NoMapping as u64;
    const PENDING: u64 = End::TablePending as u64;
    const NO_TABLE: u64 = End::NoTable as u64;
    const BUSY: u64 = End::MappingsBusy as u64;
    match raw {
        NO_MAPPING => End::NoMapping,
        PENDING => End::TablePending,
        NO_TABLE => End::NoTable,
        BUSY => End::MappingsBusy,
        _ => End::NoRow,
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
