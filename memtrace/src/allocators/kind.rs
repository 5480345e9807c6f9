//! Whose allocator it is.

use std::fmt;
use std::path::Path;

use super::names::{Listed, Named};
use crate::elf::{Elf, ElfError, Source};
use crate::model::{Naming, VirtOffset};

/// Whose allocator it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The GNU C library.
    Glibc,
    /// musl.
    Musl,
    /// jemalloc, under whatever prefix.
    Jemalloc,
    /// tcmalloc, that of gperftools or the newer one.
    Tcmalloc,
    /// mimalloc.
    Mimalloc,
    /// C++'s operators, which serve themselves.
    Cpp,
    /// Rust's global allocator, which serves itself.
    Rust,
    /// Functions that the user has named.
    Hooked,
    /// Another one, by its soname or, without one, its file's name.
    Other(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
            Self::Jemalloc => "jemalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Mimalloc => "mimalloc",
            Self::Cpp => "C++'s operators",
            Self::Rust => "Rust's global allocator",
            Self::Hooked => "functions named by --hook",
            Self::Other(name) => name,
        })
    }
}

/// Whose allocators they are that one object has: each once, never none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(Vec<Kind>);

impl Kinds {
    /// Just this one.
    #[must_use]
    pub fn one(kind: Kind) -> Self {
        Self(vec![kind])
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Kind] {
        &self.0
    }

    /// Whether one of them is none that is known, so that it may be a wrapper around another.
    pub(super) fn has_unknown(&self) -> bool {
        self.0.iter().any(|kind| matches!(kind, Kind::Other(_)))
    }

    fn add(&mut self, kind: Kind) {
        if !self.0.contains(&kind) {
            self.0.push(kind);
        }
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(Kind::to_string).collect();
        out.write_str(&names.join(" and "))
    }
}

/// Tells by what the object defines; by its name only where that is not enough.
pub(super) fn tell<S: Source>(
    elf: &Elf<S>,
    listed: &Listed,
    soname: Option<&str>,
    path: &Path,
) -> Result<Kinds, ElfError> {
    let mut kinds = Kinds::default();
    let prefixable =
        |named: &&Named| matches!(named.function.naming, Naming::Standard | Naming::Jemalloc | Naming::Mimalloc);
    for named in listed.named.iter().filter(prefixable) {
        kinds.add(match named.prefix.as_str() {
            "" => unprefixed(elf, listed, soname, path)?,
            "je_" | "_rjem_" => Kind::Jemalloc,
            "mi_" => Kind::Mimalloc,
            "tc_" => Kind::Tcmalloc,
            prefix => prefixed(listed, prefix, soname, path),
        });
    }
    let has = |naming| listed.named.iter().any(|named| named.function.naming == naming);
    if has(Naming::Hook) {
        kinds.add(Kind::Hooked);
    }
    if kinds.0.is_empty() {
        kinds.add(if has(Naming::Rust) { Kind::Rust } else { Kind::Cpp });
    }
    Ok(kinds)
}

fn unprefixed<S: Source>(elf: &Elf<S>, listed: &Listed, soname: Option<&str>, path: &Path) -> Result<Kind, ElfError> {
    let marked = |marker: &str| listed.markers.contains(marker);
    // Where a function has a second name, which is an allocator's own, the function is that allocator's.
    let malloc = |prefix: &str| address(listed, prefix, "malloc");
    let same = |prefix: &str| malloc(prefix).is_some_and(|address| malloc("") == Some(address));
    if has_own_of_jemalloc(listed, "") {
        return Ok(Kind::Jemalloc);
    }
    if same("tc_") || marked("TCMallocInternalMalloc") {
        return Ok(Kind::Tcmalloc);
    }
    if same("mi_") {
        return Ok(Kind::Mimalloc);
    }
    // musl's dynamic linker is its C library, finds its own third stage by this name, and often has no soname
    // (ldso/dynlink.c, `__dls2b`). Linked into a program, it is told by the names of its parts.
    if elf.defines("__dls3")? || ["__malloc_atfork", "__malloc_donate", "__simple_malloc"].into_iter().any(marked) {
        return Ok(Kind::Musl);
    }
    // A library of the same soname without glibc's own function would be another C library.
    if soname == Some("libc.so.6") && elf.defines("gnu_get_libc_version")? || marked("_int_malloc") {
        return Ok(Kind::Glibc);
    }
    Ok(other(soname, path))
}

fn prefixed(listed: &Listed, prefix: &str, soname: Option<&str>, path: &Path) -> Kind {
    if has_own_of_jemalloc(listed, prefix) { Kind::Jemalloc } else { other(soname, path) }
}

fn has_own_of_jemalloc(listed: &Listed, prefix: &str) -> bool {
    address(listed, prefix, "mallocx").is_some()
}

fn address(listed: &Listed, prefix: &str, name: &str) -> Option<VirtOffset> {
    let found = |named: &&Named| named.prefix == prefix && named.function.name == name;
    listed.named.iter().find(found).map(|named| named.symbol.virt)
}

fn other(soname: Option<&str>, path: &Path) -> Kind {
    let file = || path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Kind::Other(soname.map_or_else(file, str::to_owned))
}
