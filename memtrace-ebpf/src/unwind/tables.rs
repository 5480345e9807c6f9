//! Maps of the unwind tables, which user space writes, and a cache of look-ups.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::btf_maps::{Array, ArrayOfMaps, PerCpuArray};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{BLOB_ROWS, MAX_BLOBS, MAX_PAGES, MAX_RULES, Rule};
use memtrace_common::wire::End;
use memtrace_unwind::cache::{self, CachedRule, Entry};
use memtrace_unwind::lookup::{self, RuleSearch, Store};
use memtrace_unwind::{Lookup, RuleCache, Table};

use super::{return_instances, vma};
use crate::scratch::Scratch;

/// `BPF_F_MMAPABLE`: user space can mmap the map (include/uapi/linux/bpf.h).
const MMAPABLE: usize = 1 << 10;

#[btf_map]
static RULES: Array<Rule, MAX_RULES, MMAPABLE> = Array::new();

/// Blobs of rows. All rows of a blob are one element of an array: elements are rounded up to 8 bytes
/// (`array_map_alloc`, kernel/bpf/arraymap.c), and a row has 4. The search in a blob needs no further map look-ups.
#[btf_map]
static ROWS: ArrayOfMaps<Array<[u32; BLOB_ROWS], 1, MMAPABLE>, MAX_BLOBS> = ArrayOfMaps::new();

#[btf_map]
static PAGES: Array<u64, MAX_PAGES, MMAPABLE> = Array::new();

/// Half of the cache of look-ups. It is an array of words, because bpf-linker describes an array of arrays in BTF as
/// the inner array.
type CacheHalf = [u64; cache::HALF as usize * size_of::<Entry>() / size_of::<u64>()];

/// The two halves of the cache. Programs on a CPU can preempt one another between the two words of an entry;
/// [`cache`] detects such an entry.
///
/// The halves are large elements: if each entry were an element of the map, each look-up would load the per-CPU address
/// of the element.
#[btf_map]
static CACHE: PerCpuArray<CacheHalf, 2> = PerCpuArray::new();

/// Look-ups for the walk in the scratch memory of `slot`.
pub struct Tables {
    slot: u32,
    /// True if the last look-up found its rule in the cache.
    pub was_cached: bool,
}

impl Tables {
    #[inline(always)]
    pub const fn new(slot: u32) -> Self {
        Self { slot, was_cached: false }
    }
}

/// Cached rules of one generation of a process's mappings.
pub struct CachedRules {
    generation: u32,
    lower: *mut CacheHalf,
    upper: *mut CacheHalf,
}

impl CachedRules {
    #[inline(always)]
    pub fn new(generation: u32) -> Option<Self> {
        Some(Self { generation, lower: CACHE.get_ptr_mut(0)?, upper: CACHE.get_ptr_mut(1)? })
    }
}

impl RuleCache for CachedRules {
    #[inline(always)]
    fn cached(&self, pc: u64) -> Option<CachedRule> {
        let half = if cache::index(pc) < cache::HALF { self.lower } else { self.upper };
        cached_in(half, pc, self.generation)
    }
}

/// Returns the half of the cache with the entry of `pc`.
#[inline(always)]
fn half(pc: u64) -> Option<*mut CacheHalf> {
    CACHE.get_ptr_mut(cache::index(pc) / cache::HALF)
}

/// Returns the rule at `pc` if it is cached. `half` is the half of the cache with the entry of `pc`.
#[inline(always)]
fn cached_in(half: *mut CacheHalf, pc: u64, generation: u32) -> Option<CachedRule> {
    cache::decode(load(entry(half, pc)), pc, generation)
}

/// Returns the entry of `pc`. `half` is the half of the cache with this entry.
#[inline(always)]
fn entry(half: *mut CacheHalf, pc: u64) -> *mut Entry {
    // SAFETY: the pointer refers to a map value, and the index is within its bounds.
    unsafe { half.cast::<Entry>().add((cache::index(pc) % cache::HALF) as usize) }
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

/// Result of [`unwind_find_rule`]: the rule was cached. Except for this and the next two results, every result is an [`End`].
///
/// A result is one word that always has a value: with a `Result` the compiler could spill an uninitialised error,
/// which the verifier refuses.
const CACHED: u64 = 1 << 32;
/// The rule was found in the tables.
const FOUND: u64 = 2 << 32;
/// The address is in JIT code.
const GENERATED: u64 = 3 << 32;

/// Copies the rule for `pc` into the scratch memory of `slot`. The function is global, like [`super::unwind_step`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_find_rule(slot: u32, pc: u64) -> u64 {
    const NO_MAPPING: u64 = End::NoMapping as u64;
    let Some(scratch) = Scratch::get(slot) else { return NO_MAPPING };
    if load_cached(&mut scratch.rule, pc, scratch.walk.process.generation) {
        return CACHED;
    }
    if !lookup::holds(&scratch.walk.mapping, pc) {
        let end = vma::unwind_find_mapping(slot, pc);
        if end != 0 {
            return end;
        }
    }
    let Some(scratch) = Scratch::get(slot) else { return NO_MAPPING };
    match lookup::find(&Maps, &scratch.walk.mapping, pc) {
        RuleSearch::Rule(number) => {
            let Some(&rule) = RULES.get(number) else { return End::NoRow as u64 };
            copy_rule(&mut scratch.rule, rule);
            cache_rule(pc, scratch.walk.process.generation, CachedRule::new(&rule, number));
            FOUND
        }
        RuleSearch::Generated => GENERATED,
        RuleSearch::NoRule(end) => end as u64,
    }
}

/// Copies the rule for `pc` if it is cached. Returns true if it was copied.
#[inline(always)]
fn load_cached(into: &mut Rule, pc: u64, generation: u32) -> bool {
    let cached = half(pc).and_then(|half| cached_in(half, pc, generation));
    let rule = match cached {
        Some(cached) if cached.is_simple() => cached.simple(),
        Some(cached) => match RULES.get(cached.number()) {
            Some(rule) => *rule,
            None => return false,
        },
        None => return false,
    };
    copy_rule(into, rule);
    true
}

#[inline(always)]
fn cache_rule(pc: u64, generation: u32, rule: CachedRule) {
    if let Some(half) = half(pc)
        && let Some(new) = cache::encode(pc, generation, rule)
    {
        store(entry(half, pc), new);
    }
}

/// Copies a rule field by field, for the same reason as [`copy_mapping`](crate::scratch::copy_mapping).
#[inline(always)]
fn copy_rule(into: &mut Rule, from: Rule) {
    let Rule { cfa_kind, fp_kind, ra_kind, reserved: _, cfa_offset, fp_offset, extra } = from;
    into.cfa_kind = cfa_kind;
    into.fp_kind = fp_kind;
    into.ra_kind = ra_kind;
    into.cfa_offset = cfa_offset;
    into.fp_offset = fp_offset;
    into.extra = extra;
}

impl Table for Tables {
    #[inline(always)]
    fn lookup(&mut self, pc: u64) -> Lookup {
        let found = unwind_find_rule(self.slot, pc);
        self.was_cached = found == CACHED;
        match (found, Scratch::get(self.slot)) {
            (CACHED | FOUND, Some(scratch)) => Lookup::rule(scratch.rule),
            (GENERATED, _) => Lookup::GENERATED,
            (end, _) => Lookup::end(decode_end(end)),
        }
    }

    #[inline(always)]
    fn original_return(&mut self, slot: u64) -> Option<u64> {
        return_instances::original(slot)
    }
}

/// Decodes the [`End`] of a failed look-up.
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
    // SAFETY: the pointer refers to a cache entry, which has two words.
    let first = unsafe { read_volatile(words) };
    // SAFETY: as above.
    let second = unsafe { read_volatile(words.add(1)) };
    [first, second]
}

#[inline(always)]
fn store(entry: *mut Entry, [first, second]: Entry) {
    let words = entry.cast::<u64>();
    // SAFETY: the pointer refers to a cache entry, which has two words.
    unsafe { write_volatile(words, first) };
    // SAFETY: as above.
    unsafe { write_volatile(words.add(1), second) };
}
