//! Code of functions: the analysis that chooses the instruction that a jump to the stub replaces.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memtrace_fuzz::memory_with;
use memtrace_model::Object;
use memtrace_object::allocators::{self, Allocator, Kind, Kinds, Survey, UserHooks};
use memtrace_object::overlay::site::{AllocatorSites, SiteKind, choose};

/// A library that defines malloc, calloc, realloc and free, one after the other.
const LIBRARY: &[u8] = include_bytes!("../corpus/elf/allocator.so");

/// Bytes at the start of the first function.
const MARK: &[u8] = b"memtrace fuzz code";

/// Allocators with sites.
const ALLOCATORS: [&str; 2] = ["glibc", "jemalloc"];

/// Returns the allocator in the library, as one of this kind.
fn allocator(library: &[u8], kind: &str) -> Option<Allocator> {
    let path = Path::new("/usr/lib/libfuzz.so");
    let (verdict, candidates) = allocators::examine(library, path, &UserHooks::default());
    let probes = candidates.map(|candidates| candidates.choose_sites(library));
    let mut survey = Survey::default();
    let object = Object { path: path.to_owned(), handle: None, build_id: None, root: None };
    survey.add(path, verdict, probes, || Arc::new(object));
    Some(Allocator { kinds: Kinds::one(Kind::known(kind)?), ..survey.allocators.pop()? })
}

/// Checks that each site is an instruction of the file, and that the stub keeps all registers that the function needs.
fn check(library: &[u8], found: &AllocatorSites) {
    for site in &found.sites {
        assert!(site.offset > site.entry_offset && (5..=15).contains(&site.original.len()));
        assert!(library[site.offset.0 as usize..].starts_with(&site.original));
        let used = match site.kind {
            SiteKind::Alloc { size } => vec![size],
            SiteKind::Product { count, size } => vec![count, size],
            SiteKind::AllocOut { out, size } => vec![out, size],
            SiteKind::Realloc { old, size, .. } => vec![old, size],
            SiteKind::Free { block } => vec![block],
        };
        let mut kept = site.arguments.iter().map(|(_, register)| *register).chain(used);
        assert!(kept.all(|register| !site.scratch.contains(&register)));
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, code)) = input.split_first() else { return };
    let mut library = LIBRARY.to_vec();
    let start = library.windows(MARK.len()).position(|window| window == MARK).expect("the library has the mark");
    let length = code.len().min(library.len() - start).min(4096);
    library[start..start + length].copy_from_slice(&code[..length]);
    let kind = ALLOCATORS[usize::from(first) % ALLOCATORS.len()];
    let file = memory_with(&library).expect("memory can be written");
    if let Some(allocator) = allocator(&library, kind)
        && let Ok(found) = choose(&allocator, &file)
    {
        check(&library, &found);
    }
});
