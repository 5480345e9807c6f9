//! Removal of functions that get no probe, because they only call another hooked function, or because they may throw
//! and not all of their return instructions are known.
//!
//! The probe at the called function records a forwarded call. A second probe would cost time, and a free that calls
//! another free could be taken for two frees.

use std::cell::OnceCell;

use memtrace_model::{FileOffset, Naming, Signature, VirtOffset};

use super::functions::{Candidate, SkipReason, Skipped};
use super::object_code::CachedCode;
use crate::elf::imports::SlotRelocations;
use crate::elf::{Elf, Source};
use crate::probe_site::{Code, Needs, always_calls_hooked, return_sites};

/// Maximum length, in bytes, of a function that may only jump to another one.
const MAX_FORWARDER: u64 = 64;
/// Number of bytes of a PLT entry that are examined.
const PLT_ENTRY: u64 = 16;
/// Maximum number of probed return instructions of one function.
const MAX_RETURNS: usize = 32;

/// Removes from `candidates` the functions that need no probe or cannot have one.
pub(super) fn remove<S: Source>(elf: &Elf<S>, candidates: &mut Vec<Candidate>) -> Vec<Skipped> {
    let mut skipped = remove_forwarders(elf, candidates);
    for naming in [Naming::Cpp, Naming::Rust] {
        skipped.extend(remove_wrappers(elf, candidates, naming));
    }
    skipped.extend(remove_throwing(elf, candidates));
    skipped
}

fn remove_if(
    candidates: &mut Vec<Candidate>,
    reason: SkipReason,
    predicate: impl Fn(&mut Candidate) -> bool,
) -> Vec<Skipped> {
    candidates.extract_if(.., predicate).flat_map(|candidate| candidate.skipped(reason)).collect()
}

fn has_naming(candidate: &Candidate, naming: Naming) -> bool {
    candidate.functions.iter().any(|function| function.naming == naming)
}

/// Removes functions that only jump to another hooked function with unchanged arguments.
fn remove_forwarders<S: Source>(elf: &Elf<S>, candidates: &mut Vec<Candidate>) -> Vec<Skipped> {
    let all = candidates.clone();
    let relocations = OnceCell::new();
    let is_forwarder = |candidate: &mut Candidate| is_forwarder(elf, candidate, &all, &relocations).unwrap_or(false);
    remove_if(candidates, SkipReason::Forwards, is_forwarder)
}

/// Returns true if `candidate` only jumps to another one of `candidates`. `relocations` has the relocations of the
/// object after the first call that reads them.
fn is_forwarder<S: Source>(
    elf: &Elf<S>,
    candidate: &Candidate,
    candidates: &[Candidate],
    relocations: &OnceCell<Option<SlotRelocations>>,
) -> Option<bool> {
    let is_free = candidate.signature.is_free();
    let is_own = candidate.functions.iter().any(|function| matches!(function.naming, Naming::Own(_)));
    let is_removable = is_free || is_own || has_naming(candidate, Naming::Cpp);
    let is_needed = is_required(candidate) || has_naming(candidate, Naming::Hook);
    if !is_removable || is_needed || candidate.size.0 > MAX_FORWARDER {
        return Some(false);
    }
    let entry = candidate.virt.0;
    let (_, bytes) = elf.code(entry, entry.saturating_add(candidate.size.0)).ok()?;
    let code = Code { machine: elf.machine(), bytes: &bytes, entry };
    // An allocating function may change the arguments: the target of its jump returns the block to the caller anyway.
    let needs = if is_free { Needs::of_signature(candidate.signature) } else { Needs::STACK };
    let target = code.forwards_to(needs)?;
    let is_similar = |other: &&Candidate| other.virt != candidate.virt && other.signature.is_free() == is_free;
    let mut similar = candidates.iter().filter(is_similar);
    if similar.clone().any(|other| other.virt.0 == target) {
        return Some(true);
    }
    let (address, entry) = elf.code(target, target.saturating_add(PLT_ENTRY)).ok()?;
    let slot = elf.machine().slot(&entry, address)?;
    let relocations = relocations.get_or_init(|| SlotRelocations::read(elf).ok()).as_ref()?;
    let import = relocations.import(elf, slot).ok()??;
    let is_import = |symbol: &String| symbol.split('@').next() == Some(import.name.as_str());
    Some(similar.any(|other| other.symbols.iter().any(is_import)))
}

fn is_required(candidate: &Candidate) -> bool {
    candidate.functions.iter().any(|function| function.required)
}

/// Removes the C++ operators or the Rust functions if all of them call hooked functions. If only some were removed, a
/// block could be allocated at one level and freed at the other.
fn remove_wrappers<S: Source>(elf: &Elf<S>, candidates: &mut Vec<Candidate>, naming: Naming) -> Vec<Skipped> {
    let is_of_language = |candidate: &Candidate| {
        has_naming(candidate, naming) && candidate.functions.iter().all(|function| function.naming != Naming::Standard)
    };
    if !candidates.iter().any(is_of_language) {
        return Vec::new();
    }
    let is_hooked = |candidate: &Candidate| {
        !has_naming(candidate, Naming::Cpp) && !has_naming(candidate, Naming::Rust) || is_required(candidate)
    };
    let code = CachedCode::new(elf, candidates.iter().filter(|candidate| is_hooked(candidate)));
    let is_wrapper = |candidate: &Candidate| {
        let freed = match candidate.signature {
            Signature::Free { block } | Signature::FreeAround { block } => Some(block),
            _ => None,
        };
        always_calls_hooked(&code, candidate.virt.0, freed)
    };
    if candidates.iter().filter(|candidate| is_of_language(candidate)).all(is_wrapper) {
        remove_if(candidates, SkipReason::Forwards, |candidate| is_of_language(candidate))
    } else {
        Vec::new()
    }
}

/// Finds the return instructions of functions that may throw. Removes each such function if some of its return
/// instructions are not known.
fn remove_throwing<S: Source>(elf: &Elf<S>, candidates: &mut Vec<Candidate>) -> Vec<Skipped> {
    if !candidates.iter().any(may_throw) {
        return Vec::new();
    }
    let code = CachedCode::new(elf, []);
    let returns = |candidate: &Candidate| returns_of(elf, &code, candidate.virt);
    for candidate in candidates.iter_mut().filter(|candidate| may_throw(candidate)) {
        candidate.returns = returns(candidate).unwrap_or_default();
    }
    remove_if(candidates, SkipReason::Throws, |candidate| may_throw(candidate) && candidate.returns.is_empty())
}

/// Returns the addresses and file offsets of the return instructions of the function at `virt`; `None` if some are
/// not known, or if there are too many.
fn returns_of<S: Source>(
    elf: &Elf<S>,
    code: &CachedCode<'_, S>,
    virt: VirtOffset,
) -> Option<Vec<(VirtOffset, FileOffset)>> {
    let addresses = return_sites(code, virt.0).filter(|sites| sites.len() <= MAX_RETURNS)?;
    let with_offset = |address| Some((VirtOffset(address), elf.code_offset(VirtOffset(address), 1)?));
    addresses.into_iter().map(with_offset).collect()
}

fn may_throw(candidate: &Candidate) -> bool {
    candidate.functions.iter().all(|function| function.throws)
}
