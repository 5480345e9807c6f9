//! The table of known allocators.

/// An allocator that memtrace recognizes: a row of [`ALLOCATORS`].
///
/// An object's unprefixed malloc belongs to the first row with a matching property: `own_function`, an alias of malloc
/// with one of `prefixes`, `exported`, or `linked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KnownAllocator {
    /// Name in reports.
    pub name: &'static str,
    /// Prefixes of the standard functions' additional names, such as `je_` in `je_malloc`.
    pub prefixes: &'static [&'static str],
    /// True if a build may choose the prefix of the allocator's own functions: another prefix, or none.
    pub any_prefix: bool,
    /// Function that no other allocator defines. It has the same prefix as the allocator's malloc.
    pub own_function: Option<&'static str>,
    /// Dynamic symbol that identifies the allocator's library.
    pub exported: Option<&'static str>,
    /// Soname that the allocator's library must have in addition to `exported`.
    pub soname: Option<&'static str>,
    /// Starts of the file names of the allocator's libraries.
    pub libraries: &'static [&'static str],
    /// Names in the symbol table of an executable. Each name shows that the allocator is linked into the executable.
    pub linked: &'static [&'static str],
    /// True if the allocator is part of a C library.
    pub is_libc: bool,
    /// True if blocks have the chunk headers of glibc.
    pub has_glibc_chunks: bool,
    /// Distribution packages with the allocator's debug information, if all executables can use the same ones.
    pub debug_packages: Option<&'static str>,
}

/// Row without properties. The other rows override its fields.
const NONE: KnownAllocator = KnownAllocator {
    name: "",
    prefixes: &[],
    any_prefix: false,
    own_function: None,
    exported: None,
    soname: None,
    libraries: &[],
    linked: &[],
    is_libc: false,
    has_glibc_chunks: false,
    debug_packages: None,
};

/// Many builds of jemalloc use the prefix `je_`; its Rust crate uses `_rjem_`.
pub(super) const JEMALLOC: KnownAllocator = KnownAllocator {
    name: "jemalloc",
    prefixes: &["je_", "_rjem_"],
    any_prefix: true,
    own_function: Some("mallocx"),
    libraries: &["libjemalloc.so"],
    ..NONE
};

pub(super) const MIMALLOC: KnownAllocator =
    KnownAllocator { name: "mimalloc", prefixes: &["mi_"], libraries: &["libmimalloc"], ..NONE };

/// All known allocators. An object is compared with them in this order.
pub const ALLOCATORS: &[KnownAllocator] = &[
    JEMALLOC,
    MIMALLOC,
    // The functions of gperftools' tcmalloc have a prefix. The functions of the newer tcmalloc have none.
    KnownAllocator {
        name: "tcmalloc",
        prefixes: &["tc_"],
        libraries: &["libtcmalloc"],
        linked: &["TCMallocInternalMalloc"],
        ..NONE
    },
    // The dynamic linker of musl is also the C library. It looks up its third stage by this name (ldso/dynlink.c,
    // `__dls2b`), and often has no soname.
    KnownAllocator {
        name: "musl",
        exported: Some("__dls3"),
        linked: &["__malloc_atfork", "__malloc_donate", "__simple_malloc"],
        is_libc: true,
        debug_packages: Some("musl-dbgsym (Debian) or musl-dbg (Alpine)"),
        ..NONE
    },
    // A library with this soname but without glibc's own function would be another C library.
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
