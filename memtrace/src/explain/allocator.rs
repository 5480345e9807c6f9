//! Finds the allocator that implements `malloc` for a process, and the other allocators of the process.

use std::collections::BTreeSet;

use memtrace_object::allocators::{Allocator, Kind, Survey};

/// Allocator that implements `malloc` for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MallocProvider {
    /// glibc, or an object with an unknown `malloc` that may call glibc. The heap may have glibc's chunk headers.
    Glibc,
    /// Another allocator, by name. Its blocks have no headers.
    Other(String),
    /// No known allocator. The brk heap may still be a heap of glibc.
    Unknown,
}

pub(super) fn malloc_provider(survey: &Survey) -> MallocProvider {
    // A prefixed symbol such as `je_malloc` does not receive the calls of `malloc`.
    let is_malloc = |symbol: &String| symbol.split('@').next() == Some("malloc");
    let provides = |allocator: &&Allocator| allocator.functions.iter().any(|found| found.symbols.iter().any(is_malloc));
    let mut kinds = survey.allocators.iter().filter(provides).flat_map(|allocator| allocator.kinds.all());
    let preferred = kinds.clone().find(|kind| matches!(kind, Kind::Known(allocator) if !allocator.has_glibc_chunks));
    match preferred {
        // This allocator interposes the `malloc` of the C library.
        Some(kind) => MallocProvider::Other(kind.to_string()),
        None if kinds.next().is_some() => MallocProvider::Glibc,
        None => MallocProvider::Unknown,
    }
}

/// Returns the names of the known allocators that are not a C library.
pub(super) fn other_allocators(survey: &Survey) -> Vec<String> {
    let kinds = survey.allocators.iter().flat_map(|allocator| allocator.kinds.all());
    let names: BTreeSet<_> = kinds
        .filter(|kind| matches!(kind, Kind::Known(allocator) if !allocator.is_libc))
        .map(ToString::to_string)
        .collect();
    names.into_iter().collect()
}
