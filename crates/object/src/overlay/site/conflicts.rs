//! Conflicts of a site: with the probes of an exact trace, and with the sites of other functions.

use std::collections::BTreeSet;

use memtrace_model::{FileOffset, Signature};

use super::function_body::FunctionBody;
use super::instruction::{callee, callee_by_pointer};
use crate::allocators::HookedFunction;
use crate::probe_site::ObjectCode;

/// Places of the probes of an exact trace.
#[derive(Debug)]
pub(super) struct ExactProbes {
    /// Places that are reached by every call of a function. If another memtrace has changed the instruction at such a place, the
    /// trace probes the first instruction of the function instead.
    entries: BTreeSet<FileOffset>,
    others: BTreeSet<FileOffset>,
}

/// Conflict of a site with the probes of an exact trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExactConflict {
    None,
    /// The trace can use the first instruction of the same function instead.
    Entry,
    Other,
}

impl ExactProbes {
    /// Returns the places of the probes of these functions.
    pub(super) fn of(functions: &[HookedFunction]) -> Self {
        let others = functions.iter().flat_map(|function| {
            let word = function.loaded_word.map(|word| word.offset.saturating_add(function.file_offset.0));
            let results = function.results.iter().flatten().flat_map(|found| {
                let sites = found.results.iter().chain(&found.sizes).map(|site| site.offset);
                sites.chain(found.slow.iter().copied())
            });
            function.return_sites.iter().copied().chain(word.map(FileOffset)).chain(results)
        });
        let others = others.collect();
        Self { entries: functions.iter().map(|function| function.site.file_offset).collect(), others }
    }

    /// Returns the conflict of the instruction of `length` bytes at `offset`. `own` is the place of the probe that every call
    /// of the function reaches.
    pub(super) fn conflict(&self, offset: FileOffset, length: u64, own: Option<FileOffset>) -> ExactConflict {
        let inside = offset..FileOffset(offset.0.saturating_add(length));
        let mut entries = self.entries.range(inside.clone());
        if self.others.range(inside.clone()).next().is_some() || entries.any(|entry| Some(*entry) != own) {
            return ExactConflict::Other;
        }
        if own.is_some_and(|own| inside.contains(&own)) { ExactConflict::Entry } else { ExactConflict::None }
    }
}

/// Returns true for a function that returns a block.
pub(super) fn allocates(signature: Signature) -> bool {
    match signature {
        Signature::Alloc { .. }
        | Signature::AllocPages { .. }
        | Signature::AllocProduct { .. }
        | Signature::AllocOut { .. }
        | Signature::Realloc { .. }
        | Signature::ReallocProduct { .. } => true,
        Signature::Resize { .. }
        | Signature::Free { .. }
        | Signature::FreeAround { .. }
        | Signature::RepeatFrees
        | Signature::AllocFailure => false,
    }
}

/// Returns the calls and jumps of `function` to functions of the object: the address of each, and the entry of the other
/// function.
pub(super) fn calls(object: &impl ObjectCode, function: &FunctionBody) -> Vec<(u64, u64)> {
    let inside = function.range();
    // A jump to the entry begins another call.
    let leaves = |(_, target): &&(u64, u64)| !inside.contains(target) || *target == function.entry;
    let direct = function.jumps.iter().filter(leaves).chain(&function.calls);
    let direct = direct.filter_map(|(at, target)| Some((*at, callee(object, *target)?)));
    let by_pointer = function.by_pointer.iter();
    let by_pointer = by_pointer.filter_map(|(at, slot)| Some((*at, callee_by_pointer(object, *slot)?)));
    direct.chain(by_pointer).collect()
}

/// Returns the address of one of these calls that leads to a function that counts, except for the jumps at the addresses in
/// `exempt`. `counts` returns true for the entry of such a function.
pub(super) fn call_of_counting(
    calls: &[(u64, u64)],
    exempt: &[(u64, u64)],
    counts: impl Fn(u64) -> bool,
) -> Option<u64> {
    let mut others = calls.iter().filter(|(at, _)| !exempt.iter().any(|(jump, _)| jump == at));
    others.find(|(_, entry)| counts(*entry)).map(|(at, _)| *at)
}
