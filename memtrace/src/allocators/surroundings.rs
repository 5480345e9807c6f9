//! What the ways through a function lead to, told from the object's file.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::functions::Place;
use super::names;
use crate::elf::Machine;
use crate::elf::{Elf, Source};
use crate::probe_site::{ObjectCode, PointerTarget};

/// How much code is read at once, and how much more so that no instruction is cut off.
const PIECE: u64 = 4096;
const MORE: u64 = 32;

/// An object's code, with the functions that are followed in it.
pub(super) struct Code<'a, S> {
    elf: &'a Elf<S>,
    followed: HashSet<u64>,
    /// Where functions begin, in their order.
    starts: Vec<u64>,
    pieces: RefCell<HashMap<u64, (u64, Vec<u8>)>>,
    slots: RefCell<HashMap<u64, PointerTarget>>,
}

impl<'a, S: Source> Code<'a, S> {
    /// Of the places only those of which `is_followed`.
    pub(super) fn new(elf: &'a Elf<S>, places: &[Place], is_followed: impl Fn(&Place) -> bool) -> Self {
        let mut starts = elf.function_starts();
        starts.dedup();
        let followed = places.iter().filter(|place| is_followed(place)).map(|place| place.virt.0).collect();
        Self { elf, followed, starts, pieces: RefCell::default(), slots: RefCell::default() }
    }
}

impl<S: Source> ObjectCode for Code<'_, S> {
    fn machine(&self) -> Machine {
        self.elf.machine()
    }

    fn code(&self, address: u64) -> Vec<u8> {
        let first = address / PIECE * PIECE;
        let mut pieces = self.pieces.borrow_mut();
        let read = || self.elf.code(first, first.saturating_add(PIECE + MORE)).unwrap_or((first, Vec::new()));
        let (from, piece) = pieces.entry(first).or_insert_with(read);
        let at = address.checked_sub(*from).and_then(|at| usize::try_from(at).ok());
        let rest = at.and_then(|at| piece.get(at..)).unwrap_or_default();
        rest[..rest.len().min(MORE as usize)].to_vec()
    }

    fn function_end(&self, address: u64) -> Option<u64> {
        let behind = self.starts.partition_point(|&start| start <= address);
        // Before the first one that is listed there may be any number that are not.
        if behind == 0 { None } else { self.starts.get(behind).copied() }
    }

    fn is_hooked(&self, address: u64) -> bool {
        self.followed.contains(&address)
    }

    fn pointer_target(&self, slot: u64) -> PointerTarget {
        *self.slots.borrow_mut().entry(slot).or_insert_with(|| match self.elf.import_at(slot) {
            Ok(Some(import)) => match import.own {
                Some(address) => PointerTarget::Code(address),
                None if names::is_hooked(&import.name) => PointerTarget::Hooked,
                None => PointerTarget::Unknown,
            },
            _ => PointerTarget::Unknown,
        })
    }
}
