//! Functions that pass their calls on, and functions that may throw.
//!
//! What only passes on is not probed: the call is seen where it is passed on to. A free that calls another may not be
//! told from two otherwise, and whoever wraps malloc costs a second probe for nothing.

use super::functions::{Place, SkipReason, Skipped};
use super::surroundings::Code;
use crate::elf::{Elf, Source};
use crate::model::{Naming, VirtOffset};
use crate::probe_site as site;
use crate::probe_site::{Code as Function, Needs};

/// The longest function that is looked at for a mere jump.
const LONGEST: u64 = 64;
/// How much of a stub is looked at, by which an object calls what another may replace.
const STUB: u64 = 16;
/// The most return instructions of one function.
const MOST_RETURNS: usize = 32;

/// Takes those out of `places` that need no probe, or can have none.
pub(super) fn take<S: Source>(elf: &Elf<S>, places: &mut Vec<Place>) -> Vec<Skipped> {
    let mut skipped = forwarders(elf, places);
    for naming in [Naming::Cpp, Naming::Rust] {
        skipped.extend(wrappers(elf, places, naming));
    }
    skipped.extend(throwing(elf, places));
    skipped
}

fn remove(places: &mut Vec<Place>, reason: SkipReason, which: impl Fn(&Place) -> bool) -> Vec<Skipped> {
    let (taken, left) = std::mem::take(places).into_iter().partition(which);
    *places = left;
    let taken: Vec<Place> = taken;
    taken.into_iter().flat_map(|place| place.skipped(reason)).collect()
}

fn has(place: &Place, naming: Naming) -> bool {
    place.functions.iter().any(|function| function.naming == naming)
}

/// Those that only jump to another, with what is read of their arguments as it was.
fn forwarders<S: Source>(elf: &Elf<S>, places: &mut Vec<Place>) -> Vec<Skipped> {
    let all = places.clone();
    remove(places, SkipReason::Forwards, |place| forwards(elf, place, &all).unwrap_or(false))
}

fn forwards<S: Source>(elf: &Elf<S>, place: &Place, places: &[Place]) -> Option<bool> {
    let is_free = place.signature.is_free();
    let is_own = place.functions.iter().any(|function| matches!(function.naming, Naming::Own(_)));
    let may = is_free || is_own || has(place, Naming::Cpp);
    if !may || is_required(place) || has(place, Naming::Hook) || place.size.0 > LONGEST {
        return Some(false);
    }
    let entry = place.virt.0;
    let (_, bytes) = elf.code(entry, entry.saturating_add(place.size.0)).ok()?;
    let code = Function { machine: elf.machine(), bytes: &bytes, entry };
    // What is handed out behind a jump is what is handed out here.
    let needs = if is_free { Needs::of_signature(place.signature) } else { Needs::STACK };
    let target = code.forwards_to(needs)?;
    let alike = |other: &&Place| other.virt != place.virt && other.signature.is_free() == is_free;
    let mut candidates = places.iter().filter(alike);
    if candidates.clone().any(|other| other.virt.0 == target) {
        return Some(true);
    }
    let (address, stub) = elf.code(target, target.saturating_add(STUB)).ok()?;
    let import = elf.import_at(elf.machine().slot(&stub, address)?).ok()??;
    let bare = |symbol: &str| symbol.split('@').next() == Some(import.name.as_str());
    Some(candidates.any(|other| other.symbols.iter().any(|symbol| bare(symbol))))
}

fn is_required(place: &Place) -> bool {
    place.functions.iter().any(|function| function.required)
}

/// C++'s operators, or Rust's functions, where every one of them passes its calls on. Were only some of them taken, a
/// block could be handed out by one address and given up by another.
fn wrappers<S: Source>(elf: &Elf<S>, places: &mut Vec<Place>, naming: Naming) -> Vec<Skipped> {
    let is_one = |place: &Place| {
        has(place, naming) && place.functions.iter().all(|function| function.naming != Naming::Standard)
    };
    if !places.iter().any(is_one) {
        return Vec::new();
    }
    let code =
        Code::new(elf, places, |place| !has(place, Naming::Cpp) && !has(place, Naming::Rust) || is_required(place));
    let passes_on =
        |place: &Place| site::always_calls_hooked(&code, place.virt.0, place.signature.is_free().then_some(0));
    if places.iter().filter(|place| is_one(place)).all(passes_on) {
        remove(places, SkipReason::Forwards, is_one)
    } else {
        Vec::new()
    }
}

/// Finds the return instructions of those that may throw.
fn throwing<S: Source>(elf: &Elf<S>, places: &mut Vec<Place>) -> Vec<Skipped> {
    if !places.iter().any(throws) {
        return Vec::new();
    }
    let code = Code::new(elf, &[], |_| false);
    let returns = |place: &Place| {
        let found = site::return_sites(&code, place.virt.0).filter(|found| found.len() <= MOST_RETURNS)?;
        let located = |at| Some((VirtOffset(at), elf.code_offset(VirtOffset(at), 1)?));
        found.into_iter().map(located).collect::<Option<Vec<_>>>()
    };
    for place in places.iter_mut().filter(|place| throws(place)) {
        place.returns = returns(place).unwrap_or_default();
    }
    remove(places, SkipReason::Throws, |place| throws(place) && place.returns.is_empty())
}

fn throws(place: &Place) -> bool {
    place.functions.iter().all(|function| function.throws)
}
