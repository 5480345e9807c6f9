//! Which of the objects that a process has mapped are allocators, and where their functions lie.

mod forwarders;
mod functions;
mod sites;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::elf::{Elf, ElfError, Source};
use super::error::TargetError;
use crate::model::{FUNCTIONS, Function, Image, Object};

use functions::Place;
pub use functions::{FoundFunction, SkipReason, Skipped};

/// Whose allocator it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The GNU C library.
    Glibc,
    /// musl.
    Musl,
    /// Another one, by its soname or, without one, its file's name. It is known to be there but is not traced.
    Other(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glibc => out.write_str("glibc"),
            Self::Musl => out.write_str("musl"),
            Self::Other(name) => out.write_str(name),
        }
    }
}

/// An object that defines the functions of an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// The object.
    pub object: Arc<Object>,
    /// Whose it is.
    pub kind: Kind,
    /// Where its functions lie, in the order of [`FUNCTIONS`], one an address.
    pub functions: Vec<FoundFunction>,
    /// Its symbols that cannot be probed, and why.
    pub skipped: Vec<Skipped>,
}

impl Allocator {
    /// Whether memtrace can trace it: it is glibc's or musl's, and every required function can be probed.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        let names: Vec<_> = self.functions.iter().map(|found| &found.functions[..]).collect();
        !matches!(self.kind, Kind::Other(_)) && missing(&names).is_none()
    }
}

/// What an object turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An allocator that is traced.
    Traced(Kind),
    /// An allocator, but of a kind that is not traced.
    Unsupported(Kind),
    /// An allocator, but this required function of it cannot be probed.
    Unprobeable(Kind, &'static str),
    /// No allocator: it does not define this function.
    Lacks(&'static str),
    /// glibc's dynamic linker.
    DynamicLinker,
    /// No table of symbols for others: a statically linked program.
    NoDynamicSymbols,
    /// Not an ELF file.
    NotElf,
    /// For another kind of machine.
    Foreign(&'static str),
    /// The file could not be opened.
    NotOpened,
    /// The file is damaged or could not be read.
    Bad(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Traced(kind) => write!(out, "the allocator of {kind}"),
            Self::Unsupported(kind) => write!(out, "the allocator {kind}, which is not supported"),
            Self::Unprobeable(kind, function) => {
                write!(out, "the allocator of {kind}, whose {function} cannot be probed")
            }
            Self::Lacks(function) => write!(out, "no allocator, does not define {function}"),
            Self::DynamicLinker => out.write_str("glibc's dynamic linker, whose allocator serves only itself"),
            Self::NoDynamicSymbols => out.write_str("statically linked, which is not supported"),
            Self::NotElf => out.write_str("not an ELF file"),
            Self::Foreign(what) => write!(out, "for another machine ({what})"),
            Self::NotOpened => out.write_str("could not be opened"),
            Self::Bad(why) => out.write_str(why),
        }
    }
}

/// An object that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// The file, as the target sees it.
    pub path: PathBuf,
    /// What it turned out to be.
    pub verdict: Verdict,
}

impl fmt::Display for LookedAt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.verdict)
    }
}

/// What was found in a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Every allocator, supported or not. A program with another one than its C library's carries both.
    pub allocators: Vec<Allocator>,
    /// Every object, allocator or not.
    pub looked_at: Vec<LookedAt>,
}

impl Survey {
    /// The allocators to trace.
    ///
    /// # Errors
    ///
    /// [`TargetError::BadObject`] or [`TargetError::NoAllocator`] where there is none.
    pub fn supported(&self) -> Result<Vec<&Allocator>, TargetError> {
        let supported: Vec<_> = self.allocators.iter().filter(|allocator| allocator.is_supported()).collect();
        if !supported.is_empty() {
            return Ok(supported);
        }
        let bad = self.looked_at.iter().find_map(|looked| match &looked.verdict {
            Verdict::Bad(why) => Some(TargetError::BadObject { path: looked.path.clone(), why: why.clone() }),
            _ => None,
        });
        Err(bad.unwrap_or_else(|| TargetError::NoAllocator { looked_at: self.looked_at.clone() }))
    }

    /// Looks at one more object.
    fn look_at(&mut self, object: &Arc<Object>) {
        let (verdict, found) = match object.handle.as_ref().map(File::open) {
            None => (Verdict::NotOpened, None),
            Some(Err(error)) => (Verdict::Bad(error.to_string()), None),
            Some(Ok(file)) => {
                let (verdict, found) = examine(&file, &object.path);
                (verdict, found.map(|found| found.probed(&file)))
            }
        };
        self.add(&object.path, verdict, found, || Arc::clone(object));
    }

    /// Adds what [`examine`] said of a file, with its probes; `object` is asked for only if it is an allocator.
    pub(super) fn add(
        &mut self,
        path: &Path,
        verdict: Verdict,
        found: Option<Probed>,
        object: impl FnOnce() -> Arc<Object>,
    ) {
        self.looked_at.push(LookedAt { path: path.to_owned(), verdict });
        self.allocators.extend(found.map(|Probed { kind, functions, skipped }| Allocator {
            object: object(),
            kind,
            functions,
            skipped,
        }));
    }
}

/// Looks for allocators in what a process has mapped, at each object once.
#[must_use]
pub fn survey(image: &Image) -> Survey {
    let mut survey = Survey::default();
    let mut seen: Vec<&Arc<Object>> = Vec::new();
    for object in image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()) {
        if !seen.iter().any(|known| Arc::ptr_eq(known, object)) {
            seen.push(object);
            survey.look_at(object);
        }
    }
    survey
}

/// An allocator, without the object it was found in.
#[derive(Debug)]
pub(super) struct Found {
    kind: Kind,
    functions: Vec<Place>,
    skipped: Vec<Skipped>,
}

/// As [`Found`], with where the probes go.
#[derive(Debug)]
pub(super) struct Probed {
    kind: Kind,
    functions: Vec<FoundFunction>,
    skipped: Vec<Skipped>,
}

impl Found {
    /// What each of its places goes by.
    fn names(&self) -> Vec<&[&'static Function]> {
        self.functions.iter().map(|place| &place.functions[..]).collect()
    }

    /// Chooses where the probes go; `source` is the file that this was found in.
    pub(super) fn probed<S: Source>(self, source: S) -> Probed {
        let Self { kind, functions: places, skipped } = self;
        let sites = sites::choose(source, &places);
        let functions = places.into_iter().zip(sites).map(|(place, site)| place.probed_at(site)).collect();
        Probed { kind, functions, skipped }
    }
}

/// Says what a file is. `path` serves for a name only.
pub(super) fn examine<S: Source>(source: S, path: &Path) -> (Verdict, Option<Found>) {
    match judge(source, path) {
        Ok(Ok(found)) => {
            let kind = found.kind.clone();
            let verdict = match (&kind, missing(&found.names())) {
                (Kind::Other(_), _) => Verdict::Unsupported(kind),
                (_, Some(function)) => Verdict::Unprobeable(kind, function),
                (_, None) => Verdict::Traced(kind),
            };
            (verdict, Some(found))
        }
        Ok(Err(verdict)) => (verdict, None),
        Err(ElfError::NotElf) => (Verdict::NotElf, None),
        Err(ElfError::Foreign(what)) => (Verdict::Foreign(what), None),
        Err(error) => (Verdict::Bad(error.to_string()), None),
    }
}

/// An object is an allocator if it defines every required function itself; whoever only imports them is a customer.
fn judge<S: Source>(source: S, path: &Path) -> Result<Result<Found, Verdict>, ElfError> {
    let elf = Elf::parse(source)?;
    if !elf.has_dynamic_symbols() {
        return Ok(Err(Verdict::NoDynamicSymbols));
    }
    for function in FUNCTIONS.iter().filter(|function| function.required) {
        if !elf.defines(function.name)? {
            return Ok(Err(Verdict::Lacks(function.name)));
        }
    }
    let soname = elf.soname()?;
    if soname.as_deref().is_some_and(is_dynamic_linker) {
        return Ok(Err(Verdict::DynamicLinker));
    }
    let kind = kind(&elf, soname, path)?;
    let (functions, skipped) = functions::find(&elf)?;
    Ok(Ok(Found { kind, functions, skipped }))
}

/// A required function that no place is named by; of each place, these are its names.
fn missing(places: &[&[&'static Function]]) -> Option<&'static str> {
    let found = |function: &Function| places.iter().any(|functions| functions.contains(&function));
    FUNCTIONS
        .iter()
        .filter(|function| function.required)
        .find(|function| !found(function))
        .map(|function| function.name)
}

/// Up to 2.31, glibc's dynamic linker exports an allocator of its own, which it uses until libc's is there
/// (elf/dl-minimal.c; no longer exported since glibc bug 25486). Programs never reach it: libc's comes before it.
fn is_dynamic_linker(soname: &str) -> bool {
    // ld-linux-x86-64.so.2, ld-linux-aarch64.so.1; ld64.so.2 on some others (shlib-versions).
    soname.starts_with("ld-linux") || soname.starts_with("ld64.so")
}

fn kind<S: Source>(elf: &Elf<S>, soname: Option<String>, path: &Path) -> Result<Kind, ElfError> {
    // musl's dynamic linker is its C library, finds its own third stage by this name, and often has no soname
    // (ldso/dynlink.c, `__dls2b`).
    if elf.defines("__dls3")? {
        return Ok(Kind::Musl);
    }
    // A library of the same soname without glibc's own function would be another C library.
    if soname.as_deref() == Some("libc.so.6") && elf.defines("gnu_get_libc_version")? {
        return Ok(Kind::Glibc);
    }
    let file = || path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Kind::Other(soname.unwrap_or_else(file)))
}

#[cfg(test)]
mod tests;
