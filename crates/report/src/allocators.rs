//! Recognizes mappings that an allocator made, by the names of functions in their stacks.

use memtrace_model::{Bytes, FUNCTIONS, Naming, Profile, StackProfile};

/// Prefixes of glibc's internal aliases of allocation functions.
const OWN_PREFIXES: [&str; 3] = ["__GI_", "__libc_", "__"];

/// Internal functions of glibc (malloc/malloc.c, malloc/arena.c). A stack can contain one of them and no hooked function.
const INTERNAL: [&str; 7] =
    ["sysmalloc", "_int_malloc", "_int_realloc", "_int_free", "_mid_memalign", "new_heap", "heap_trim"];

/// Returns true if the stack passes through an allocation function.
pub(super) fn is_within(profile: &Profile, stack: &StackProfile) -> bool {
    stack.frames.iter().any(|id| profile.frames[id.index()].name.as_ref().is_ok_and(|name| hands_out(&name.0)))
}

/// Returns the live bytes of mappings that allocators made.
pub(super) fn mapped(profile: &Profile) -> Bytes {
    let own = profile.stacks.iter().filter(|stack| is_within(profile, stack));
    Bytes(own.map(|stack| stack.usage.live().bytes.0).sum())
}

/// Returns true for the name of an allocation function.
pub(super) fn hands_out(name: &str) -> bool {
    if INTERNAL.contains(&name) {
        return true;
    }
    let name = OWN_PREFIXES.iter().fold(name, |name, prefix| name.strip_prefix(prefix).unwrap_or(name));
    name.starts_with("operator new")
        || FUNCTIONS
            .iter()
            .any(|function| Naming::Standard.prefixes().any(|prefix| name.strip_prefix(prefix) == Some(function.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_functions_are_recognized_by_all_their_names() {
        for name in
            ["malloc", "__GI___libc_malloc", "__libc_calloc", "je_malloc", "mi_zalloc", "operator new(unsigned long)"]
        {
            assert!(hands_out(name), "{name}");
        }
        for name in ["main", "mmap", "malloc_printerr", "__mmap"] {
            assert!(!hands_out(name), "{name}");
        }
    }
}
