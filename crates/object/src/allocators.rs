//! Discovery of the allocators in a process: finds the mapped objects that define an allocator, and the functions of
//! each allocator.
//!
//! An object is recognized by the allocator functions that it defines, in its dynamic symbols or in its symbol table.
//! The result for an object depends only on its bytes, its file name and [`UserHooks`].

mod alloc_failures;
mod error;
mod function_exits;
mod function_results;
mod function_sites;
mod functions;
mod jemalloc_counters;
mod jumps;
mod kind;
mod names;
mod object_code;
pub mod operators;
mod probed_function;
mod repeated_frees;
mod result_sites;
mod rust_methods;
mod samplers;
mod sites;
mod user_hooks;
mod verdict;
mod wrappers;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memtrace_model::{AbsAddr, Mapping, Object, ProcessImage, Signature, VirtOffset};

use crate::elf::{Elf, ElfError, Source, notes, virt_offset};
use crate::object_files::ObjectFiles;
use crate::probe_site::{ResultRefusal, Site};

pub use error::AllocatorError;
pub use function_exits::{ExitSites, exits_of};
pub use function_results::{FunctionResult, FunctionResults};
use function_sites::FunctionSites;
use functions::Candidate;
pub use functions::{HookedFunction, SkipReason, Skipped};
pub use jemalloc_counters::{CountersRefusal, JemallocCounters, TpOffset};
pub(crate) use jumps::{MAX_CODE, is_jump_into, near_jump_into};
pub use kind::{Kind, Kinds};
use names::ObjectSymbols;
pub(crate) use object_code::CachedCode;
pub use probed_function::ProbedFunction;
pub use samplers::{
    AllocatorSampler, IntervalVariable, SamplerFunction, SamplerRefusal, SamplerReport, SamplerSizes, find_samplers,
};
pub use user_hooks::{Hooks, NamedAllocator, UserHooks};
pub use verdict::{ExaminedObject, Verdict};

/// An object that defines the functions of an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// The object.
    pub object: Arc<Object>,
    /// Kinds of the allocators in the object: more than one if several are linked together.
    pub kinds: Kinds,
    /// Functions to probe, ordered as in the table of functions, one per address.
    pub functions: Vec<HookedFunction>,
    /// Symbols of hooked functions that are not probed.
    pub skipped: Vec<Skipped>,
}

impl Allocator {
    /// Returns true if the allocator can be traced: at least one allocating and one freeing function can be probed,
    /// or one function that the user has named.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        missing(&self.kinds, self.functions.iter().map(|function| function.signature)).is_none()
    }

    /// Returns true for a Rust allocator with probes only at the functions that rustc generates, such as `__rust_alloc`.
    /// Optimized code can bypass these functions.
    #[must_use]
    pub fn has_only_rustc_functions(&self) -> bool {
        let is_method = |function: &HookedFunction| rust_methods::is_method(function.function());
        self.kinds.all() == [Kind::Rust] && !self.functions.iter().any(is_method)
    }
}

/// Result of the search for allocators in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// All allocators, supported or not. If the executable defines an allocator, the list has the C library's allocator too.
    pub allocators: Vec<Allocator>,
    /// All examined objects, allocator or not.
    pub examined: Vec<ExaminedObject>,
}

impl Survey {
    /// Returns the allocators to trace.
    ///
    /// # Errors
    ///
    /// [`AllocatorError::BadObject`] or [`AllocatorError::NotFound`] if there is none.
    pub fn supported(&self) -> Result<Vec<&Allocator>, AllocatorError> {
        let supported: Vec<_> = self.allocators.iter().filter(|allocator| allocator.is_supported()).collect();
        if !supported.is_empty() {
            return Ok(supported);
        }
        let bad = self.examined.iter().find_map(|object| match &object.verdict {
            Verdict::Bad(reason) => {
                Some(AllocatorError::BadObject { path: object.path.clone(), reason: reason.clone() })
            }
            _ => None,
        });
        Err(bad.unwrap_or_else(|| AllocatorError::NotFound { examined: self.examined.clone() }))
    }

    fn examine(&mut self, object: &Arc<Object>, user_hooks: &UserHooks, files: &dyn ObjectFiles) {
        let (verdict, probes) = match object.handle.as_deref().map(|handle| files.open(handle)) {
            None => (Verdict::NotOpened, None),
            Some(Err(error)) => (Verdict::Bad(error.to_string()), None),
            Some(Ok(file)) if files.is_own_executable(&file) => (Verdict::Own, None),
            Some(Ok(file)) => {
                let (verdict, candidates) = examine(&file, &object.path, user_hooks);
                (verdict, candidates.map(|candidates| candidates.choose_sites(&file)))
            }
        };
        self.add(&object.path, verdict, probes, || Arc::clone(object));
    }

    /// Adds the result of [`examine`] for the file at `path`. `probes` are the file's functions with their sites. `object` is
    /// called only if there are `probes`.
    pub fn add(
        &mut self,
        path: &Path,
        verdict: Verdict,
        probes: Option<AllocatorProbes>,
        object: impl FnOnce() -> Arc<Object>,
    ) {
        self.examined.push(ExaminedObject { path: path.to_owned(), verdict });
        self.allocators.extend(probes.map(|AllocatorProbes { kinds, functions, skipped }| Allocator {
            object: object(),
            kinds,
            functions,
            skipped,
        }));
    }
}

/// Examines each object that a process has mapped. Code of the kernel, such as the vDSO, is skipped.
#[must_use]
pub fn survey(image: &ProcessImage, user_hooks: &UserHooks, files: &dyn ObjectFiles) -> Survey {
    let mut survey = Survey::default();
    let mut seen: Vec<&Arc<Object>> = Vec::new();
    for object in image.objects() {
        if Object::is_kernel_code(&object.path) {
            continue;
        }
        if !seen.iter().any(|other| Arc::ptr_eq(other, object)) {
            seen.push(object);
            survey.examine(object, user_hooks, files);
        }
    }
    survey
}

/// Returns the best instruction for a probe that runs at each entry of `function` in the file `source`.
pub fn entry_site<S: Source>(source: S, function: ProbedFunction) -> Option<Site> {
    sites::choose(source, &[function]).pop().map(|sites| sites.entry)
}

/// Functions of an allocator before the choice of their probe sites.
#[derive(Debug)]
pub struct AllocatorCandidates {
    kinds: Kinds,
    functions: Vec<Candidate>,
    skipped: Vec<Skipped>,
}

/// Functions of an allocator with their probe sites.
#[derive(Debug)]
pub struct AllocatorProbes {
    kinds: Kinds,
    functions: Vec<HookedFunction>,
    skipped: Vec<Skipped>,
}

impl AllocatorCandidates {
    /// Chooses the probe sites. `source` is the file that was examined.
    pub fn choose_sites<S: Source>(self, source: S) -> AllocatorProbes {
        let Self { kinds, functions, skipped } = self;
        let probed: Vec<_> = functions.iter().map(Into::into).collect();
        let sites = sites::choose(source, &probed);
        let is_examined = kinds.are_glibc();
        let with_sites = |(candidate, site): (Candidate, FunctionSites)| match site.results {
            Some(Ok(_)) if !is_examined => {
                candidate.with_sites(FunctionSites { results: Some(Err(ResultRefusal::OtherAllocator)), ..site })
            }
            _ => candidate.with_sites(site),
        };
        let functions = functions.into_iter().zip(sites).map(with_sites).collect();
        AllocatorProbes { kinds, functions, skipped }
    }
}

/// Examines the file `source`. `path` is compared with the objects that the user has named. An unknown allocator without a soname
/// gets its name from the file name of `path`.
pub fn examine<S: Source>(source: S, path: &Path, user_hooks: &UserHooks) -> (Verdict, Option<AllocatorCandidates>) {
    match find_candidates(source, path, user_hooks) {
        Ok(Ok(candidates)) => {
            let kinds = candidates.kinds.clone();
            let signatures = candidates.functions.iter().map(|candidate| candidate.signature);
            let verdict = match missing(&kinds, signatures) {
                Some(function) => Verdict::Unprobeable(kinds, function),
                None => Verdict::Traced(kinds),
            };
            (verdict, Some(candidates))
        }
        Ok(Err(verdict)) => (verdict, None),
        Err(ElfError::NotElf) => (Verdict::NotElf, None),
        Err(ElfError::Foreign(machine)) => (Verdict::Foreign(machine), None),
        Err(error) => (Verdict::Bad(error.to_string()), None),
    }
}

/// Finds the allocator functions of an object. An object has an allocator if it defines an allocating and a freeing
/// function; imports do not count. C++ operators and Rust functions count if they are more than wrappers.
fn find_candidates<S: Source>(
    source: S,
    path: &Path,
    user_hooks: &UserHooks,
) -> Result<Result<AllocatorCandidates, Verdict>, ElfError> {
    let elf = Elf::parse(source)?;
    if notes::is_go(&elf)? {
        return Ok(Err(Verdict::Go));
    }
    let soname = elf.soname()?;
    let user_names = user_hooks.names_in(path, soname.as_deref());
    let mut symbols = names::find(&elf, &user_names)?;
    if !elf.has_dynamic_symbols() && !symbols.has_symbol_table {
        return Ok(Err(Verdict::NoSymbols));
    }
    let active = active_prefixes(&symbols, &user_names.prefixes);
    symbols.hooked.retain(|hooked| !hooked.function.naming.has_prefix() || active.contains(&hooked.prefix));
    if symbols.hooked.is_empty() {
        // A static position-independent executable reaches this code: it has a table of dynamic symbols, but the table is empty.
        let is_stripped = !symbols.has_symbol_table && elf.is_static()?;
        return Ok(Err(if is_stripped { Verdict::NoSymbols } else { Verdict::Lacks("malloc") }));
    }
    if soname.as_deref().is_some_and(is_dynamic_linker) {
        return Ok(Err(Verdict::DynamicLinker));
    }
    let kinds = kind::identify(&elf, &symbols, soname.as_deref(), path)?;
    let hooked = symbols.hooked.into_iter().map(|hooked| (hooked.function, hooked.symbol)).collect();
    let (mut functions, mut skipped) = functions::group_by_address(hooked, |virt, size| elf.code_offset(virt, size));
    if kinds.has_unknown() {
        functions::follow_returns_of_frees(&mut functions);
    }
    skipped.extend(wrappers::remove(&elf, &mut functions));
    let unknown = symbols.unknown_methods.into_iter();
    skipped.extend(unknown.map(|symbol| Skipped { symbol, reason: SkipReason::UnknownArguments }));
    functions.extend(repeated_frees::find(&elf, &kinds, soname.as_deref(), &functions)?);
    functions.extend(alloc_failures::find(&elf, &functions)?);
    if active.is_empty() && functions.is_empty() {
        return Ok(Err(Verdict::Lacks("malloc")));
    }
    Ok(Ok(AllocatorCandidates { kinds, functions, skipped }))
}

/// Returns the name prefixes of the allocators in the object. The empty prefix needs malloc and free. Any other
/// prefix needs an allocating and a freeing function, because a linker leaves out functions that a program does not
/// call.
fn active_prefixes(symbols: &ObjectSymbols, user_prefixes: &[String]) -> Vec<String> {
    let mut prefixes: Vec<String> = Vec::new();
    let prefixed = || symbols.hooked.iter().filter(|hooked| hooked.function.naming.has_prefix());
    for prefix in prefixed().map(|hooked| &hooked.prefix) {
        let same = || prefixed().filter(|hooked| hooked.prefix == *prefix);
        let has = |name: &str| same().any(|hooked| hooked.function.name == name);
        let frees = |frees: bool| same().any(|hooked| hooked.function.signature.is_free() == frees);
        let is_whole = if prefix.is_empty() { has("malloc") && has("free") } else { frees(true) && frees(false) };
        if (is_whole || user_prefixes.contains(prefix)) && !prefixes.contains(prefix) {
            prefixes.push(prefix.clone());
        }
    }
    prefixes
}

/// Returns `malloc` if no function with these signatures allocates, else `free` if none frees. For functions that the user has
/// named, one function of either kind suffices.
fn missing(kinds: &Kinds, signatures: impl Iterator<Item = Signature>) -> Option<&'static str> {
    let signatures =
        signatures.filter(|signature| !matches!(signature, Signature::RepeatFrees | Signature::AllocFailure));
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

/// Returns true for the soname of glibc's dynamic linker. Up to glibc 2.31 it exports an allocator, which it uses
/// until libc is loaded (elf/dl-minimal.c; glibc bug 25486). Programs never call it, because libc precedes it in the
/// lookup order.
fn is_dynamic_linker(soname: &str) -> bool {
    // ld-linux-x86-64.so.2, ld-linux-aarch64.so.1; ld64.so.2 on other architectures (shlib-versions).
    soname.starts_with("ld-linux") || soname.starts_with("ld64.so")
}

/// Returns the address of `virt` in a process. `virt` is an address in the object `file`, and `mapping` is a mapping
/// of the object. Returns `None` if the mapping belongs to no segment of the object.
pub fn address_in(mapping: &Mapping, file: &File, virt: VirtOffset) -> Option<AbsAddr> {
    let elf = Elf::parse_headers(file).ok()?;
    let start = virt_offset(elf.segments(), mapping.offset)?;
    Some(AbsAddr(mapping.start.0.wrapping_sub(start.0).wrapping_add(virt.0)))
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
