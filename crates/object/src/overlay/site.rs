//! Choice of the instructions of an allocator that a jump to the stub replaces.
//!
//! A site is one instruction. A stopped thread is either before or after the instruction, so the jump can be written while all
//! threads are stopped, without a look at their stacks. An instruction is chosen if all of these are proved:
//!
//! - Each call of the function executes the instruction once: the walk in `prefix` reaches the instruction, the branches before
//!   it lead to failures or to functions with their own sites (`bypass`), and nothing else leads to it or to the code before it
//!   (`windows`).
//! - The stub finds the arguments, and can undo the frame: `prefix` follows both, and requires that the code before the site
//!   changes nothing else, because the stub calls the function again for a sampled block.
//! - The stub has the registers that it overwrites for itself, and the flags too, or can set them again (`liveness`).
//! - No other tool has a reason to change the instruction, and no call counts at two sites (`conflicts`, `selection`).
//!
//! The first instruction of a function is never a site: a removed probe of another tool would write the original byte over the
//! jump. An allocator without a site in `malloc`, `calloc`, `realloc` or `free` is refused as a whole.

mod bypass;
mod candidates;
mod conflicts;
mod function;
mod function_body;
mod glibc;
mod instruction;
mod liveness;
mod overlay_site;
mod prefix;
mod refusal;
mod selection;
mod windows;

#[cfg(test)]
mod synthetic;
#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod tests;

use std::fs::File;

use memtrace_model::Signature;

use crate::allocators::{Allocator, CachedCode, HookedFunction, Kind, Kinds, MAX_CODE, SkipReason};
use crate::elf::{Elf, Machine, Source};
use conflicts::ExactProbes;
use function::{Bodies, Function, REQUIRED};
use selection::Selection;

pub use glibc::{Gadgets, gadgets, glibc_version};
pub use overlay_site::{AllocatorSites, OverlaySite, Relative, SiteKind};
pub use refusal::{AllocatorRefusal, SiteRefusal};

/// Allocators with proved sites, by their names in the table of allocators.
const GLIBC: &str = "glibc";
const JEMALLOC: &str = "jemalloc";
/// Allocator of a C library without memory for the countdown of a thread.
const MUSL: &str = "musl";

/// Maximum number of functions that are examined. jemalloc has about 30 with C++ operators.
const MAX_FUNCTIONS: usize = 128;

/// Chooses the sites of an allocator. `file` is the file of its object.
///
/// # Errors
///
/// The reason that the allocator is not patched.
pub fn choose(allocator: &Allocator, file: &File) -> Result<AllocatorSites, AllocatorRefusal> {
    choose_in(allocator, file)
}

fn choose_in<S: Source>(allocator: &Allocator, source: S) -> Result<AllocatorSites, AllocatorRefusal> {
    let kind = supported_kind(&allocator.kinds)?;
    let refused = |refusal| AllocatorRefusal::LacksSite(REQUIRED[0], refusal);
    let elf = Elf::parse(source).map_err(|_| refused(SiteRefusal::Unreadable))?;
    if elf.machine() != Machine::X86_64 {
        return Err(refused(SiteRefusal::Architecture));
    }
    if elf.code_size() > MAX_CODE {
        return Err(refused(SiteRefusal::TooMuchCode));
    }
    let counts =
        |function: &&HookedFunction| !matches!(function.signature, Signature::RepeatFrees | Signature::AllocFailure);
    let hooked: Vec<&HookedFunction> = allocator.functions.iter().filter(counts).collect();
    if hooked.len() > MAX_FUNCTIONS {
        return Err(refused(SiteRefusal::TooMuchCode));
    }
    let code = CachedCode::with_entries(&elf, hooked.iter().map(|function| function.virt.0));
    let bodies = Bodies::new(&elf, &code);
    let body_of = |address| bodies.containing(address);
    let mut functions: Vec<Function> =
        hooked.iter().map(|function| Function::of_hooked(&code, function, &body_of)).collect();
    functions.extend(Function::shared_by(&code, &functions, &body_of));
    let exact = ExactProbes::of(&allocator.functions);
    let selection = Selection::of(&elf, &code, &functions, &exact, kind == GLIBC);
    check_required(allocator, &functions, &selection)?;
    let missed = functions.iter().enumerate().filter(|(_, function)| !function.is_shared);
    let missed = missed.filter_map(|(index, function)| Some((function, selection.refusal(index)?)));
    let missed = missed.filter(|(function, _)| !selection.is_counted_elsewhere(function));
    let mut gaps: Vec<(String, SiteRefusal)> =
        missed.map(|(function, refusal)| (function.name.clone(), refusal)).collect();
    for (name, refusal) in skipped(allocator) {
        if !gaps.iter().any(|(known, _)| *known == name) {
            gaps.push((name, refusal));
        }
    }
    Ok(AllocatorSites { kinds: allocator.kinds.clone(), sites: selection.sites(), gaps })
}

/// Returns false if an object with these allocators is never patched. [`choose`] reads the code, which takes some tens of
/// milliseconds.
#[must_use]
pub fn is_supported(kinds: &Kinds) -> bool {
    supported_kind(kinds).is_ok()
}

/// Returns the name of the allocator, if it is the only one in the object and is supported.
fn supported_kind(kinds: &Kinds) -> Result<&'static str, AllocatorRefusal> {
    match kinds.all() {
        [Kind::Known(known)] => match known.name {
            GLIBC | JEMALLOC => Ok(known.name),
            MUSL => Err(AllocatorRefusal::Thread),
            name => Err(AllocatorRefusal::Unsupported(name)),
        },
        // Functions of one allocator can call functions of the other.
        kinds if kinds.len() > 1 => Err(AllocatorRefusal::Unsupported("a file with several allocators")),
        _ => Err(AllocatorRefusal::Unknown(kinds.to_string())),
    }
}

/// Checks that each function that is needed has a site.
fn check_required<S: Source>(
    allocator: &Allocator,
    functions: &[Function],
    selection: &Selection<'_, S, CachedCode<'_, S>>,
) -> Result<(), AllocatorRefusal> {
    for name in REQUIRED {
        let mut found = functions.iter().enumerate().filter(|(_, function)| function.required == Some(name)).peekable();
        if found.peek().is_none() {
            let skipped = skipped(allocator).find(|(skipped, _)| skipped.ends_with(name));
            let refusal = skipped.map_or(SiteRefusal::Unreadable, |(_, refusal)| refusal);
            return Err(AllocatorRefusal::LacksSite(name, refusal));
        }
        if let Some(refusal) = found.find_map(|(index, _)| selection.refusal(index)) {
            return Err(AllocatorRefusal::LacksSite(name, refusal));
        }
    }
    Ok(())
}

/// Returns the names of the functions that the search for the allocator has left out, with the reasons. Functions that only call
/// another one are not listed.
fn skipped(allocator: &Allocator) -> impl Iterator<Item = (String, SiteRefusal)> {
    allocator.skipped.iter().filter_map(|skipped| {
        let refusal = match skipped.reason {
            SkipReason::Forwards => return None,
            SkipReason::Throws => SiteRefusal::Throws,
            SkipReason::Indirect
            | SkipReason::NotAFunction
            | SkipReason::NotCode
            | SkipReason::Ambiguous
            | SkipReason::UnknownArguments => SiteRefusal::Unreadable,
        };
        Some((skipped.name(), refusal))
    })
}
