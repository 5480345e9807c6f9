//! The table of known allocators.

/// An allocator that memtrace recognizes: a row of [`ALLOCATORS`].
///
/// An object's unprefixed malloc belongs to the first row with a matching property: `own_function`, an alias of malloc
/// with one of `prefixes`, `exported`, or `linked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KnownAllocator {
    /// Name in reports.
    pub name: &'static str,
    /// Prefixes under which it defines the standard functions, too.
    pub prefixes: &'static [&'static str],
    /// True if builds may choose another prefix, or none for its own functions.
    pub any_prefix: bool,
    /// Function that no other allocator defines. It has the same prefix as its malloc.
    pub own_function: Option<&'static str>,
    /// Dynamic symbol that identifies its library.
    pub exported: Option<&'static str>,
    /// Soname that its library must have in addition to `exported`.
    pub soname: Option<&'static str>,
    /// Entries of the symbol table, each of which identifies it if it is linked into an executable.
    pub linked: &'static [&'static str],
    /// True if it is part of a C library.
    pub is_libc: bool,
    /// True if its blocks have the chunk headers of glibc.
    pub has_glibc_chunks: bool,
    /// Packages with its debug information, if they are the same for all programs.
    pub debug_packages: Option<&'static str>,
}

/// Without any property: base of the rows.
const NONE: KnownAllocator = KnownAllocator {
    name: "",
    prefixes: &[],
    any_prefix: false,
    own_function: None,
    exported: None,
    soname: None,
    linked: &[],
    is_libc: false,
    has_glibc_chunks: false,
    debug_packages: None,
};

/// `je_` is common in builds of jemalloc, `_rjem_` is the prefix of its Rust crate.
pub(super) const JEMALLOC: KnownAllocator = KnownAllocator {
    name: "jemalloc",
    prefixes: &["je_", "_rjem_"],
    any_prefix: true,
    own_function: Some("mallocx"),
    ..NONE
};

pub(super) const MIMALLOC: KnownAllocator = KnownAllocator { name: "mimalloc", prefixes: &["mi_"], ..NONE };

/// All known allocators, in the order in which an object is compared with them.
pub const ALLOCATORS: &[KnownAllocator] = &[
    JEMALLOC,
    MIMALLOC,
    // The newer tcmalloc has no prefix, that of gperftools has.
    KnownAllocator { name: "tcmalloc", prefixes: &["tc_"], linked: &["TCMallocInternalMalloc"], ..NONE },
    // musl's dynamic linker is its C library, finds its own third stage by this name, and often has no soname
    // (ldso/dynlink.c, `__dls2b`).
    KnownAllocator {
        name: "musl",
        exported: Some("__dls3"),
        linked: &["__malloc_atfork", "__malloc_donate", "__simple_malloc"],
        is_libc: true,
        debug_packages: Some("musl-dbgsym (Debian) or musl-dbg (Alpine)"),
        ..NONE
    },
    // A library of the same soname without glibc's own function would be another C library.
    KnownAllocator {
        name: "glibc",
        exported: Some("gnu_get_libc_version"),
        soname: Some("libc.so.6"),
        linked: &["_int_malloc"],
        is_libc: true,
        has_glibc_chunks: true,
        debug_packages: Some("libc6-dbg (Debian, Ubuntu) or glibc-debuginfo (Fedora, SUSE)"),
        ..NONE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prefix_belongs_to_one_allocator() {
        let owners = |prefix| ALLOCATORS.iter().filter(move |allocator| allocator.prefixes.contains(prefix)).count();
        let mut prefixes = ALLOCATORS.iter().flat_map(|allocator| allocator.prefixes);
        assert!(prefixes.all(|prefix| !prefix.is_empty() && owners(prefix) == 1));
    }
}
