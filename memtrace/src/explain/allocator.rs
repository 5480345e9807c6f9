//! Allocators of a process.

use memtrace_object::allocators::{Allocator, Kind, Survey};

/// Allocator that implements `malloc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MallocProvider {
    /// glibc, or a wrapper that may call it: its heap is worth a walk.
    Glibc,
    /// Name of another allocator, which has no block headers.
    Other(String),
    /// No known allocator; the brk heap may still be glibc's.
    Unknown,
}

pub(super) fn malloc_provider(survey: &Survey) -> MallocProvider {
    // Calls of malloc reach the symbol without a prefix.
    let is_malloc = |symbol: &String| symbol.split('@').next() == Some("malloc");
    let provides = |allocator: &&Allocator| allocator.functions.iter().any(|found| found.symbols.iter().any(is_malloc));
    let mut kinds = survey.allocators.iter().filter(provides).flat_map(|allocator| allocator.kinds.all());
    let preferred = kinds.clone().find(|kind| matches!(kind, Kind::Known(allocator) if !allocator.has_glibc_chunks));
    match preferred {
        // It interposes the C library's.
        Some(kind) => MallocProvider::Other(kind.to_string()),
        None if kinds.next().is_some() => MallocProvider::Glibc,
        None => MallocProvider::Unknown,
    }
}

/// Returns the names of other allocators with their own memory, such as prefixed ones.
pub(super) fn other_allocators(survey: &Survey) -> Vec<String> {
    let kinds = survey.allocators.iter().flat_map(|allocator| allocator.kinds.all());
    let mut names: Vec<_> = kinds
        .filter(|kind| matches!(kind, Kind::Known(allocator) if !allocator.is_libc))
        .map(ToString::to_string)
        .collect();
    names.dedup();
    names
}
