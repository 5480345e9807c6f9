//! Identification of the allocators in an object by its symbols.

use std::fmt;
use std::path::Path;

use memtrace_model::{ALLOCATORS, KnownAllocator, Naming, VirtOffset};

use super::names::ObjectSymbols;
use crate::elf::{Elf, ElfError, Source, dynamic_symbols};

/// Kind of an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An allocator of the table of known allocators.
    Known(&'static KnownAllocator),
    /// C++ operators that do not call another allocator.
    Cpp,
    /// A global allocator of Rust that does not call another allocator.
    Rust,
    /// Functions that the user has named.
    Hooked,
    /// An unknown allocator, named by the object's soname, or by its file name if it has no soname.
    Other(String),
}

impl Kind {
    /// Returns the known allocator with this name.
    #[must_use]
    pub fn known(name: &str) -> Option<Self> {
        ALLOCATORS.iter().find(|allocator| allocator.name == name).map(Self::Known)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Known(allocator) => allocator.name,
            Self::Cpp => "C++'s operators",
            Self::Rust => "Rust's global allocator",
            Self::Hooked => "functions named by --hook",
            Self::Other(name) => name,
        })
    }
}

/// Kinds of the allocators in one object: at least one, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(Vec<Kind>);

impl Kinds {
    /// Returns a set of one kind.
    #[must_use]
    pub fn one(kind: Kind) -> Self {
        Self(vec![kind])
    }

    /// Returns all kinds in the order of their identification.
    #[must_use]
    pub fn all(&self) -> &[Kind] {
        &self.0
    }

    /// Returns true if the blocks of all kinds have glibc's chunk headers.
    #[must_use]
    pub fn have_glibc_chunks(&self) -> bool {
        self.0.iter().all(|kind| matches!(kind, Kind::Known(allocator) if allocator.has_glibc_chunks))
    }

    /// Returns true if glibc is the only kind.
    pub(super) fn are_glibc(&self) -> bool {
        self.0.iter().all(|kind| matches!(kind, Kind::Known(allocator) if allocator.name == "glibc"))
    }

    /// Returns true if one of the kinds is jemalloc.
    #[must_use]
    pub fn have_jemalloc(&self) -> bool {
        self.0.iter().any(|kind| matches!(kind, Kind::Known(allocator) if allocator.name == "jemalloc"))
    }

    /// Returns true if one of the kinds is unknown, so that it may be a wrapper around another allocator.
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

/// Identifies the allocators of an object by its symbols and its soname. An unknown allocator is named by the soname
/// or the path.
pub(super) fn identify<S: Source>(
    elf: &Elf<S>,
    symbols: &ObjectSymbols,
    soname: Option<&str>,
    path: &Path,
) -> Result<Kinds, ElfError> {
    let mut kinds = Kinds::default();
    for hooked in symbols.hooked.iter().filter(|hooked| hooked.function.naming.has_prefix()) {
        let owner = match hooked.prefix.as_str() {
            "" => owner_of_malloc(elf, symbols, soname)?,
            prefix => owner_of_prefix(symbols, prefix),
        };
        kinds.add(owner.map_or_else(|| other(soname, path), Kind::Known));
    }
    let has = |naming| symbols.hooked.iter().any(|hooked| hooked.function.naming == naming);
    if has(Naming::Hook) {
        kinds.add(Kind::Hooked);
    }
    if kinds.0.is_empty() {
        kinds.add(if has(Naming::Rust) { Kind::Rust } else { Kind::Cpp });
    }
    Ok(kinds)
}

/// Returns the allocator that defines the unprefixed functions.
fn owner_of_malloc<S: Source>(
    elf: &Elf<S>,
    symbols: &ObjectSymbols,
    soname: Option<&str>,
) -> Result<Option<&'static KnownAllocator>, ElfError> {
    let malloc = address(symbols, "", "malloc");
    for allocator in ALLOCATORS {
        let is_alias = |prefix: &&str| malloc.is_some() && address(symbols, prefix, "malloc") == malloc;
        let is_linked = |marker: &&str| symbols.markers.contains(*marker);
        let has_soname = allocator.soname.is_none_or(|expected| soname == Some(expected));
        let exported = allocator.exported.filter(|_| has_soname);
        if has_own_function(allocator, symbols, "")
            || allocator.prefixes.iter().any(is_alias)
            || allocator.linked.iter().any(is_linked)
            || exported.map_or(Ok(false), |name| dynamic_symbols::defines(elf, name))?
        {
            return Ok(Some(allocator));
        }
    }
    Ok(None)
}

/// Returns the allocator that defines the functions with `prefix`.
fn owner_of_prefix(symbols: &ObjectSymbols, prefix: &str) -> Option<&'static KnownAllocator> {
    let is_owner = |allocator: &&KnownAllocator| {
        allocator.prefixes.contains(&prefix) || has_own_function(allocator, symbols, prefix)
    };
    ALLOCATORS.iter().find(is_owner)
}

fn has_own_function(allocator: &KnownAllocator, symbols: &ObjectSymbols, prefix: &str) -> bool {
    allocator.own_function.is_some_and(|name| address(symbols, prefix, name).is_some())
}

fn address(symbols: &ObjectSymbols, prefix: &str, name: &str) -> Option<VirtOffset> {
    let mut hooked = symbols.hooked.iter();
    hooked.find(|hooked| hooked.prefix == prefix && hooked.function.name == name).map(|hooked| hooked.symbol.virt)
}

fn other(soname: Option<&str>, path: &Path) -> Kind {
    let file = || path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Kind::Other(soname.map_or_else(file, str::to_owned))
}
