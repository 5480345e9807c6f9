//! Code of an object file for the control flow analysis of [`crate::probe_site`].

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::functions::Candidate;
use super::names;
use crate::elf::Machine;
use crate::elf::{Elf, Source};
use crate::probe_site::{ObjectCode, PointerTarget};

/// Bytes of code read at once.
const CHUNK: u64 = 4096;
/// Bytes read after a chunk, so that no instruction is cut off.
const OVERLAP: u64 = 32;

/// Code of an object file, read in chunks.
pub(super) struct CodeChunks<'a, S> {
    elf: &'a Elf<S>,
    chunks: RefCell<HashMap<u64, (u64, Vec<u8>)>>,
}

impl<'a, S: Source> CodeChunks<'a, S> {
    pub(super) fn new(elf: &'a Elf<S>) -> Self {
        Self { elf, chunks: RefCell::default() }
    }

    /// Returns at least one instruction from `address` on; nothing if no code is there.
    pub(super) fn at(&self, address: u64) -> Vec<u8> {
        let first = address / CHUNK * CHUNK;
        let mut chunks = self.chunks.borrow_mut();
        let read = || self.elf.code(first, first.saturating_add(CHUNK + OVERLAP)).unwrap_or((first, Vec::new()));
        let (from, chunk) = chunks.entry(first).or_insert_with(read);
        let at = address.checked_sub(*from).and_then(|at| usize::try_from(at).ok());
        let rest = at.and_then(|at| chunk.get(at..)).unwrap_or_default();
        rest[..rest.len().min(OVERLAP as usize)].to_vec()
    }
}

/// Code of an object file, with caches of what has been read.
pub(super) struct CachedCode<'a, S> {
    code: CodeChunks<'a, S>,
    /// Entries of the hooked functions.
    hooked: HashSet<u64>,
    /// Addresses of all functions, sorted.
    starts: Vec<u64>,
    slots: RefCell<HashMap<u64, PointerTarget>>,
}

impl<'a, S: Source> CachedCode<'a, S> {
    pub(super) fn new<'c>(elf: &'a Elf<S>, hooked: impl IntoIterator<Item = &'c Candidate>) -> Self {
        let mut starts = elf.function_starts();
        starts.dedup();
        let hooked = hooked.into_iter().map(|candidate| candidate.virt.0).collect();
        Self { code: CodeChunks::new(elf), hooked, starts, slots: RefCell::default() }
    }
}

impl<S: Source> ObjectCode for CachedCode<'_, S> {
    fn machine(&self) -> Machine {
        self.code.elf.machine()
    }

    fn code(&self, address: u64) -> Vec<u8> {
        self.code.at(address)
    }

    fn function_end(&self, address: u64) -> Option<u64> {
        let next = self.starts.partition_point(|&start| start <= address);
        // There may be unlisted functions before the first listed one.
        if next == 0 { None } else { self.starts.get(next).copied() }
    }

    fn is_hooked(&self, address: u64) -> bool {
        self.hooked.contains(&address)
    }

    fn pointer_target(&self, slot: u64) -> PointerTarget {
        *self.slots.borrow_mut().entry(slot).or_insert_with(|| match self.code.elf.import_at(slot) {
            Ok(Some(import)) => match import.own {
                Some(address) => PointerTarget::Code(address),
                None if names::is_hooked(&import.name) => PointerTarget::Hooked,
                None => PointerTarget::Unknown,
            },
            _ => PointerTarget::Unknown,
        })
    }
}
