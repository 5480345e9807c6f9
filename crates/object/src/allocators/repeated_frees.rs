//! Search for the functions of glibc that free blocks again.
//!
//! These are local functions in the source file of `free` (malloc/malloc.c):
//!
//! - Up to glibc 2.41, `tcache_thread_shutdown`, a part of `__malloc_arena_thread_freeres`. An exiting thread frees
//!   each block in its cache, and the cache itself.
//! - Since glibc 2.42, `tcache_free_init` and `tcache_double_free_verify`. `free` jumps to them, and they jump back
//!   to its start with the same block.
//!
//! A stripped library has no symbols for these functions. They are found by their direct branches to `free`: apart
//! from `realloc`, other functions of the library call `free` through the PLT, because another allocator may replace
//! it.

use std::collections::BTreeMap;

use memtrace_model::{Bytes, REPEATS_FREES, VirtOffset};

use super::functions::Candidate;
use super::kind::{Kind, Kinds};
use crate::elf::{Elf, ElfError, Source, function_starts, symbol_table};

/// Name of the allocator with such functions.
const GLIBC: &str = "glibc";
/// Soname of glibc.
const LIBRARY: &str = "libc.so.6";
/// Names of the functions in the symbol table of an executable that is linked with glibc.
const NAMES: [&[u8]; 3] = [b"__malloc_arena_thread_freeres", b"tcache_free_init", b"tcache_double_free_verify"];
/// Maximum distance of the searched code from `free` in bytes.
const DISTANCE: u64 = 1 << 16;
/// Maximum length, in bytes, of a function that repeats frees.
const MAX_FUNCTION: u64 = 1 << 12;

/// Returns the functions that repeat frees, or an empty list if the object does not contain glibc.
pub(super) fn find<S: Source>(
    elf: &Elf<S>,
    kinds: &Kinds,
    soname: Option<&str>,
    candidates: &[Candidate],
) -> Result<Vec<Candidate>, ElfError> {
    if !kinds.all().iter().any(|kind| matches!(kind, Kind::Known(allocator) if allocator.name == GLIBC)) {
        return Ok(Vec::new());
    }
    let functions = if soname == Some(LIBRARY) { by_code(elf, candidates)? } else { by_name(elf)? };
    let candidate = |(start, size): (u64, u64)| {
        Some(Candidate {
            functions: vec![&REPEATS_FREES],
            symbols: vec![REPEATS_FREES.name.to_owned()],
            file_offset: elf.code_offset(VirtOffset(start), size)?,
            virt: VirtOffset(start),
            size: Bytes(size),
            signature: REPEATS_FREES.signature,
            returns: Vec::new(),
        })
    };
    Ok(functions.into_iter().filter_map(candidate).collect())
}

/// Returns the addresses and sizes of the functions in an executable that is linked with glibc.
fn by_name<S: Source>(elf: &Elf<S>) -> Result<Vec<(u64, u64)>, ElfError> {
    let functions = symbol_table::find_functions(elf, |name| NAMES.contains(&name))?.unwrap_or_default();
    Ok(functions.into_iter().map(|(_, symbol)| (symbol.virt.0, symbol.size)).collect())
}

/// Direct branches of one function.
#[derive(Debug, Default)]
struct Branches {
    /// Number of branches to `free`.
    to_free: usize,
    /// True if `free` branches to the start of this function.
    from_free: bool,
}

/// Returns the addresses and sizes of the functions in the library.
fn by_code<S: Source>(elf: &Elf<S>, candidates: &[Candidate]) -> Result<Vec<(u64, u64)>, ElfError> {
    let has_name = |candidate: &&Candidate| candidate.functions.iter().any(|function| function.name == "free");
    let Some(free) = candidates.iter().find(has_name).map(|candidate| candidate.virt.0) else { return Ok(Vec::new()) };
    let starts = function_starts::find(elf);
    let start_of = |at: u64| starts.partition_point(|&start| start <= at).checked_sub(1).map(|index| starts[index]);
    let (address, code) = elf.code(free.saturating_sub(DISTANCE), free.saturating_add(DISTANCE))?;
    let mut functions: BTreeMap<u64, Branches> = BTreeMap::new();
    elf.machine().branches(&code, address, |from, to| {
        let Some(function) = start_of(from) else { return };
        if to == free {
            functions.entry(function).or_default().to_free += 1;
        }
        if function == free {
            functions.entry(to).or_default().from_free = true;
        }
    });
    let is_hooked = |start: u64| candidates.iter().any(|candidate| candidate.virt.0 == start);
    let repeats = |branches: &Branches| branches.to_free >= 2 || branches.to_free == 1 && branches.from_free;
    let found = functions.into_iter().filter(|(start, branches)| repeats(branches) && !is_hooked(*start));
    let with_size = |(start, _)| {
        let end = *starts.get(starts.partition_point(|&other| other <= start))?;
        Some((start, end - start)).filter(|&(_, size)| size <= MAX_FUNCTION)
    };
    Ok(found.filter_map(with_size).collect())
}
