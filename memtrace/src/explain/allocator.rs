//! Which allocator serves a process, and whether its marks can be read.

use crate::allocators::{Allocator, Kind, Survey};

/// The allocator that `malloc` means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// glibc's, or one that may hand on to it: its marks are worth a look.
    Glibc,
    /// Another, by its name, which keeps no marks at its blocks.
    Unmarked(String),
    /// None that is known; what `brk` gave out may still be glibc's.
    Unknown,
}

/// What a survey says of it.
pub(super) fn serving(survey: &Survey) -> Serving {
    // Programs that call malloc come where that name has no prefix.
    let is_malloc = |symbol: &String| symbol.split('@').next() == Some("malloc");
    let serves = |allocator: &&Allocator| allocator.functions.iter().any(|found| found.symbols.iter().any(is_malloc));
    let mut kinds = survey.allocators.iter().filter(serves).flat_map(|allocator| allocator.kinds.all());
    let unmarked = kinds.clone().find(|kind| matches!(kind, Kind::Known(allocator) if !allocator.has_glibc_chunks));
    match unmarked {
        // What stands before the C library's takes its place.
        Some(kind) => Serving::Unmarked(kind.to_string()),
        None if kinds.next().is_some() => Serving::Glibc,
        None => Serving::Unknown,
    }
}

/// Other allocators in the process, behind prefixes, that have memory of their own.
pub(super) fn beside(survey: &Survey) -> Vec<String> {
    let kinds = survey.allocators.iter().flat_map(|allocator| allocator.kinds.all());
    let mut names: Vec<_> = kinds
        .filter(|kind| matches!(kind, Kind::Known(allocator) if !allocator.is_libc))
        .map(ToString::to_string)
        .collect();
    names.dedup();
    names
}
