//! Functions of `mallctl` for the counters, found in its tables.
//!
//! A table of `mallctl` is an array of `ctl_named_node_t` (jemalloc, include/jemalloc/internal/ctl.h). An entry has a
//! flag, the name, the number of children, the children, and the function. The four names of the counters have had
//! the same order since jemalloc 3.0 (src/ctl.c, `thread_node`).

use std::collections::{HashMap, HashSet};

use memtrace_model::VirtOffset;

use super::refusal::CountersRefusal;
use crate::elf::{Elf, ElfError, Source, constants, relocations};

/// Size of an entry in bytes.
const ENTRY: u64 = 40;
/// Offset of the name in an entry.
const NAME: u64 = 8;
/// Offset of the function in an entry.
const FUNCTION: u64 = 32;
/// Names of the counters, ordered as in the table.
const NAMES: [&[u8]; 4] = [b"allocated\0", b"allocatedp\0", b"deallocated\0", b"deallocatedp\0"];
/// Index of `deallocatedp`, which no other table of `mallctl` has.
const LAST: u64 = 3;

/// Functions of `mallctl` for one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handlers {
    /// Address of the function that returns the number.
    pub(super) value: u64,
    /// Address of the function that returns a pointer to the number.
    pub(super) pointer: u64,
}

/// Functions of `mallctl` for both counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadHandlers {
    pub(super) allocated: Handlers,
    pub(super) deallocated: Handlers,
}

/// Finds the functions in the table of the node `thread`.
pub(super) fn find<S: Source>(elf: &Elf<S>) -> Result<ThreadHandlers, CountersRefusal> {
    let tables = find_tables(elf)?;
    let pointers = read_pointers(elf, &tables)?;
    let mut found = tables.iter().filter_map(|table| read_table(elf, &pointers, *table));
    let handlers = found.next().ok_or(CountersRefusal::NoTable)?;
    if found.next().is_some() { Err(CountersRefusal::SeveralTables) } else { Ok(handlers) }
}

/// Returns the addresses of the `allocated` entries of possible tables: tables with `deallocatedp` as their last name.
fn find_tables<S: Source>(elf: &Elf<S>) -> Result<Vec<u64>, ElfError> {
    // There may be several addresses: a linker may merge a string with the end of another one.
    let names: HashSet<u64> = constants::find(elf, NAMES[LAST as usize])?.into_iter().collect();
    let mut tables = Vec::new();
    relocations::for_each_pointer(elf, |place, target| {
        if names.contains(&target)
            && let Some(table) = place.checked_sub(LAST * ENTRY + NAME)
        {
            tables.push(table);
        }
    })?;
    Ok(tables)
}

/// Returns the pointers in the entries of the tables, as a map from the address of each pointer to its target.
fn read_pointers<S: Source>(elf: &Elf<S>, tables: &[u64]) -> Result<HashMap<u64, u64>, ElfError> {
    let mut pointers = HashMap::new();
    relocations::for_each_pointer(elf, |place, target| {
        let is_inside = |table: &u64| place.wrapping_sub(*table) < NAMES.len() as u64 * ENTRY;
        if tables.iter().any(is_inside) {
            pointers.insert(place, target);
        }
    })?;
    Ok(pointers)
}

fn read_table<S: Source>(elf: &Elf<S>, pointers: &HashMap<u64, u64>, table: u64) -> Option<ThreadHandlers> {
    let entry = |number: usize| {
        let at = table + number as u64 * ENTRY;
        let function = *pointers.get(&(at + FUNCTION))?;
        let has_name = constants::is_at(elf, *pointers.get(&(at + NAME))?, NAMES[number]);
        (has_name && elf.code_offset(VirtOffset(function), 1).is_some()).then_some(function)
    };
    Some(ThreadHandlers {
        allocated: Handlers { value: entry(0)?, pointer: entry(1)? },
        deallocated: Handlers { value: entry(2)?, pointer: entry(3)? },
    })
}
