//! Functions that only pass their calls on, as glibc's free_sized does to free.
//!
//! Nothing tells a free within a free from two of them, since no return of a free is followed. So where one hooked
//! function frees by jumping to another, only the other is probed.

use super::functions::{Place, SkipReason, Skipped};
use crate::target::elf::{Elf, ElfError, Source};
use crate::target::site::{Code, Needs};

/// The longest function that is looked at: what only jumps is short.
const LONGEST: u64 = 64;
/// How much of a stub is looked at, by which an object calls what another may replace.
const STUB: u64 = 16;

/// Takes those out of `places` that only jump to a required function of the same shape whose return is not followed.
/// What cannot be read is left where it is.
pub(super) fn take<S: Source>(elf: &Elf<S>, places: &mut Vec<Place>) -> Vec<Skipped> {
    let forwards = |place: &Place| forwards(elf, place, places).unwrap_or(false);
    let (taken, left) = places.clone().into_iter().partition(forwards);
    *places = left;
    let taken: Vec<Place> = taken;
    let symbols = taken.into_iter().flat_map(|place| place.symbols);
    symbols.map(|symbol| Skipped { symbol, reason: SkipReason::Forwards }).collect()
}

fn forwards<S: Source>(elf: &Elf<S>, place: &Place, places: &[Place]) -> Result<bool, ElfError> {
    if place.shape().needs_return() || is_required(place) || place.size.0 > LONGEST {
        return Ok(false);
    }
    let entry = place.virt.0;
    let (_, bytes) = elf.code(entry, entry.saturating_add(place.size.0))?;
    let code = Code { machine: elf.machine(), bytes: &bytes, entry };
    let Some(target) = code.forwards_to(Needs::of(place.shape())) else { return Ok(false) };
    let candidates = places.iter().filter(|other| other.shape() == place.shape() && is_required(other));
    if candidates.clone().any(|other| other.virt.0 == target) {
        return Ok(true);
    }
    let (address, stub) = elf.code(target, target.saturating_add(STUB))?;
    let Some(slot) = elf.machine().slot(&stub, address) else { return Ok(false) };
    let names: Vec<_> = candidates.flat_map(|other| &other.functions).map(|function| function.name).collect();
    Ok(elf.import_at(slot, &names)?.is_some())
}

fn is_required(place: &Place) -> bool {
    place.functions.iter().any(|function| function.required)
}
