//! Which of the objects that a process has mapped are allocators, and where their functions lie.
//!
//! An allocator is told by what it defines, for others or, where its table of all symbols was left to it, for itself. What
//! is said of an object depends on its bytes alone and on what the user has named.

mod error;
mod functions;
mod kind;
mod names;
mod sites;
mod surroundings;
mod verdict;
mod wanted;
mod wrappers;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::elf::{Elf, ElfError, Source};
use crate::model::{Naming, Object, ProcessImage, Signature};

pub use error::AllocatorError;
use functions::Place;
pub use functions::{FoundFunction, SkipReason, Skipped};
pub use kind::{Kind, Kinds};
use names::{Listed, Named};
pub use verdict::{ExaminedObject, Verdict};
pub use wanted::{Hooks, Named as NamedAllocator, UserHooks};

/// An object that defines the functions of an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// The object.
    pub object: Arc<Object>,
    /// Whose they are: more than one where several are linked together.
    pub kinds: Kinds,
    /// Where its functions lie, in the order of the table of functions, one an address.
    pub functions: Vec<FoundFunction>,
    /// Its symbols that cannot be probed, and why.
    pub skipped: Vec<Skipped>,
}

impl Allocator {
    /// Whether memtrace can trace it: something that hands out blocks and something that gives them up can be probed, or
    /// whatever the user has named.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        missing(&self.kinds, self.functions.iter().map(|found| found.signature)).is_none()
    }
}

/// What was found in a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Every allocator, whether it can be traced or not. A program with another one than its C library's carries both.
    pub allocators: Vec<Allocator>,
    /// Every object, allocator or not.
    pub looked_at: Vec<ExaminedObject>,
}

impl Survey {
    /// The allocators to trace.
    ///
    /// # Errors
    ///
    /// [`AllocatorError::BadObject`] or [`AllocatorError::NotFound`] where there is none.
    pub fn supported(&self) -> Result<Vec<&Allocator>, AllocatorError> {
        let supported: Vec<_> = self.allocators.iter().filter(|allocator| allocator.is_supported()).collect();
        if !supported.is_empty() {
            return Ok(supported);
        }
        let bad = self.looked_at.iter().find_map(|looked| match &looked.verdict {
            Verdict::Bad(why) => Some(AllocatorError::BadObject { path: looked.path.clone(), reason: why.clone() }),
            _ => None,
        });
        Err(bad.unwrap_or_else(|| AllocatorError::NotFound { examined: self.looked_at.clone() }))
    }

    /// Looks at one more object.
    fn look_at(&mut self, object: &Arc<Object>, wanted: &UserHooks) {
        let (verdict, found) = match object.handle.as_ref().map(File::open) {
            None => (Verdict::NotOpened, None),
            Some(Err(error)) => (Verdict::Bad(error.to_string()), None),
            Some(Ok(file)) => {
                let (verdict, found) = examine(&file, &object.path, wanted);
                (verdict, found.map(|found| found.probed(&file)))
            }
        };
        self.add(&object.path, verdict, found, || Arc::clone(object));
    }

    /// Adds what [`examine`] said of a file, with its probes; `object` is asked for only if it is an allocator.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        verdict: Verdict,
        found: Option<Probed>,
        object: impl FnOnce() -> Arc<Object>,
    ) {
        self.looked_at.push(ExaminedObject { path: path.to_owned(), verdict });
        self.allocators.extend(found.map(|Probed { kinds, functions, skipped }| Allocator {
            object: object(),
            kinds,
            functions,
            skipped,
        }));
    }
}

/// Looks for allocators in what a process has mapped, at each object once.
#[must_use]
pub fn survey(image: &ProcessImage, wanted: &UserHooks) -> Survey {
    let mut survey = Survey::default();
    let mut seen: Vec<&Arc<Object>> = Vec::new();
    for object in image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()) {
        if !seen.iter().any(|known| Arc::ptr_eq(known, object)) {
            seen.push(object);
            survey.look_at(object, wanted);
        }
    }
    survey
}

/// An allocator, without the object it was found in.
#[derive(Debug)]
pub(crate) struct Found {
    kinds: Kinds,
    functions: Vec<Place>,
    skipped: Vec<Skipped>,
}

/// As [`Found`], with where the probes go.
#[derive(Debug)]
pub(crate) struct Probed {
    kinds: Kinds,
    functions: Vec<FoundFunction>,
    skipped: Vec<Skipped>,
}

impl Found {
    /// Chooses where the probes go; `source` is the file that this was found in.
    pub(crate) fn probed<S: Source>(self, source: S) -> Probed {
        let Self { kinds, functions: places, skipped } = self;
        let sites = sites::choose(source, &places);
        let functions = places.into_iter().zip(sites).map(|(place, site)| place.probed_at(site)).collect();
        Probed { kinds, functions, skipped }
    }
}

/// Says what a file is. `path` serves for names only.
pub(crate) fn examine<S: Source>(source: S, path: &Path, wanted: &UserHooks) -> (Verdict, Option<Found>) {
    match judge(source, path, wanted) {
        Ok(Ok(found)) => {
            let kinds = found.kinds.clone();
            let verdict = match missing(&found.kinds, found.functions.iter().map(|place| place.signature)) {
                Some(what) => Verdict::Unprobeable(kinds, what),
                None => Verdict::Traced(kinds),
            };
            (verdict, Some(found))
        }
        Ok(Err(verdict)) => (verdict, None),
        Err(ElfError::NotElf) => (Verdict::NotElf, None),
        Err(ElfError::Foreign(what)) => (Verdict::Foreign(what), None),
        Err(error) => (Verdict::Bad(error.to_string()), None),
    }
}

/// An object is an allocator if it defines something that allocates and something that frees; whoever only imports them is
/// a customer. C++'s and Rust's own functions count where they are no mere wrappers.
fn judge<S: Source>(source: S, path: &Path, wanted: &UserHooks) -> Result<Result<Found, Verdict>, ElfError> {
    let elf = Elf::parse(source)?;
    if elf.is_go()? {
        return Ok(Err(Verdict::Go));
    }
    let soname = elf.soname()?;
    let more = wanted.of(path, soname.as_deref());
    let mut listed = names::find(&elf, &more)?;
    if !elf.has_dynamic_symbols() && !listed.has_all {
        return Ok(Err(Verdict::NoSymbols));
    }
    let active = active_prefixes(&listed, &more.prefixes);
    listed.named.retain(|named| is_meant(named, &active));
    if listed.named.is_empty() {
        return Ok(Err(Verdict::Lacks("malloc")));
    }
    if soname.as_deref().is_some_and(is_dynamic_linker) {
        return Ok(Err(Verdict::DynamicLinker));
    }
    let kinds = kind::tell(&elf, &listed, soname.as_deref(), path)?;
    let named = listed.named.into_iter().map(|named| (named.function, named.symbol)).collect();
    let (mut places, mut skipped) = functions::arrange(named, |virt, size| elf.code_offset(virt, size));
    if kinds.has_unknown() {
        functions::follow_returns(&mut places);
    }
    skipped.extend(wrappers::take(&elf, &mut places));
    if active.is_empty() && places.is_empty() {
        return Ok(Err(Verdict::Lacks("malloc")));
    }
    Ok(Ok(Found { kinds, functions: places, skipped }))
}

/// The prefixes under which the object has an allocator: without one, malloc and free; behind one, anything that allocates
/// and anything that frees, since a linker leaves out what a program does not call.
fn active_prefixes(listed: &Listed, named_by_user: &[String]) -> Vec<String> {
    let mut prefixes: Vec<String> = Vec::new();
    let prefixable =
        |named: &&Named| matches!(named.function.naming, Naming::Standard | Naming::Jemalloc | Naming::Mimalloc);
    for Named { prefix, .. } in listed.named.iter().filter(prefixable) {
        let same = || listed.named.iter().filter(prefixable).filter(|named| named.prefix == *prefix);
        let has = |name: &str| same().any(|named| named.function.name == name);
        let frees = |frees: bool| same().any(|named| named.function.signature.is_free() == frees);
        let is_whole = if prefix.is_empty() { has("malloc") && has("free") } else { frees(true) && frees(false) };
        if (is_whole || named_by_user.contains(prefix)) && !prefixes.contains(prefix) {
            prefixes.push(prefix.clone());
        }
    }
    prefixes
}

fn is_meant(named: &Named, active: &[String]) -> bool {
    match named.function.naming {
        Naming::Standard | Naming::Jemalloc | Naming::Mimalloc => active.contains(&named.prefix),
        Naming::Cpp | Naming::Rust | Naming::Hook => true,
    }
}

/// What no function of these signatures does, though an allocator must.
fn missing(kinds: &Kinds, signatures: impl Iterator<Item = Signature>) -> Option<&'static str> {
    let (frees, others): (Vec<_>, Vec<_>) = signatures.partition(|signature| signature.is_free());
    if kinds.all().contains(&Kind::Hooked) && !(frees.is_empty() && others.is_empty()) {
        return None;
    }
    match (others.is_empty(), frees.is_empty()) {
        (true, _) => Some("malloc"),
        (false, true) => Some("free"),
        (false, false) => None,
    }
}

/// Up to 2.31, glibc's dynamic linker exports an allocator of its own, which it uses until libc's is there
/// (elf/dl-minimal.c; no longer exported since glibc bug 25486). Programs never reach it: libc's comes before it.
fn is_dynamic_linker(soname: &str) -> bool {
    // ld-linux-x86-64.so.2, ld-linux-aarch64.so.1; ld64.so.2 on some others (shlib-versions).
    soname.starts_with("ld-linux") || soname.starts_with("ld64.so")
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
