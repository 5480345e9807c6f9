//! Code of an object file for the control flow analysis of [`crate::probe_site`].

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};

use memtrace_model::VirtOffset;

use super::functions::Candidate;
use super::names;
use crate::elf::imports::{self, SlotRelocations};
use crate::elf::{Elf, Machine, Sections, Source, function_starts};
use crate::probe_site::{ObjectCode, PointerTarget};

/// Number of bytes of code read at once.
const CHUNK: u64 = 4096;
/// Maximum number of chunks that are kept. A hostile object has functions in many chunks.
const MAX_CHUNKS: usize = 4096;
/// Number of bytes read after a chunk, so that no instruction at its end is cut.
const OVERLAP: u64 = 32;

/// Functions of the C library and of the C++ runtime that do not return.
const NEVER_RETURN: [&str; 10] = [
    "abort",
    "exit",
    "_exit",
    "__assert_fail",
    "__stack_chk_fail",
    "__cxa_throw",
    "__cxa_rethrow",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "_ZSt17__throw_bad_allocv",
];

/// Functions of the C library that return their first argument.
const RETURN_FIRST: [&str; 3] = ["memset", "memcpy", "memmove"];

/// Code of an object file. It is read in chunks, which are kept.
pub(super) struct CodeChunks<'a, S> {
    elf: &'a Elf<S>,
    chunks: RefCell<HashMap<u64, (u64, Vec<u8>)>>,
}

impl<'a, S: Source> CodeChunks<'a, S> {
    pub(super) fn new(elf: &'a Elf<S>) -> Self {
        Self { elf, chunks: RefCell::default() }
    }

    /// Returns the bytes from `address` on: at least one whole instruction, or no bytes if there is no code.
    pub(super) fn at(&self, address: u64) -> Vec<u8> {
        let first = address / CHUNK * CHUNK;
        let mut chunks = self.chunks.borrow_mut();
        if chunks.len() >= MAX_CHUNKS && !chunks.contains_key(&first) {
            chunks.clear();
        }
        let read = || self.elf.code(first, first.saturating_add(CHUNK + OVERLAP)).unwrap_or((first, Vec::new()));
        let (from, chunk) = chunks.entry(first).or_insert_with(read);
        let at = address.checked_sub(*from).and_then(|at| usize::try_from(at).ok());
        let rest = at.and_then(|at| chunk.get(at..)).unwrap_or_default();
        rest[..rest.len().min(OVERLAP as usize)].to_vec()
    }
}

/// Code of an object file, with its function entries and a cache of its GOT slots.
pub(crate) struct CachedCode<'a, S> {
    code: CodeChunks<'a, S>,
    /// Entries of the hooked functions.
    hooked: HashSet<u64>,
    /// Addresses of all functions, sorted.
    starts: Vec<u64>,
    /// End of the last function; `None` if the section headers are stripped.
    end: Option<u64>,
    /// Relocations of the GOT slots, read with the first slot; `None` if they are damaged.
    relocations: OnceCell<Option<SlotRelocations>>,
    /// Resolvers of the object's own [`RETURN_FIRST`].
    resolvers: OnceCell<Vec<VirtOffset>>,
    slots: RefCell<HashMap<u64, PointerTarget>>,
}

impl<'a, S: Source> CachedCode<'a, S> {
    pub(super) fn new<'c>(elf: &'a Elf<S>, hooked: impl IntoIterator<Item = &'c Candidate>) -> Self {
        Self::with_entries(elf, hooked.into_iter().map(|candidate| candidate.virt.0))
    }

    /// As [`Self::new`]. `hooked` are the addresses of the hooked functions.
    pub(crate) fn with_entries(elf: &'a Elf<S>, hooked: impl IntoIterator<Item = u64>) -> Self {
        let mut starts = function_starts::find(elf);
        starts.dedup();
        let end = starts.last().and_then(|&last| Sections::read(elf)?.code_end(last));
        let hooked = hooked.into_iter().collect();
        Self {
            code: CodeChunks::new(elf),
            hooked,
            starts,
            end,
            relocations: OnceCell::new(),
            resolvers: OnceCell::new(),
            slots: RefCell::default(),
        }
    }

    /// Returns the target of the GOT slot at the address `slot`.
    fn target_of_slot(&self, slot: u64) -> PointerTarget {
        let elf = self.code.elf;
        let relocations = self.relocations.get_or_init(|| SlotRelocations::read(elf).ok());
        let Some(relocations) = relocations else { return PointerTarget::Unknown };
        let resolvers = || self.resolvers.get_or_init(|| imports::resolvers(elf, &RETURN_FIRST));
        let returns_first = |resolver: VirtOffset| resolvers().contains(&resolver);
        match relocations.import(elf, slot) {
            Ok(Some(import)) => match import.own {
                Some(address) => PointerTarget::Code(address),
                None if names::is_hooked(&import.name) => PointerTarget::Hooked,
                None if NEVER_RETURN.contains(&import.name.as_str()) => PointerTarget::NeverReturns,
                None if RETURN_FIRST.contains(&import.name.as_str()) => PointerTarget::ReturnsFirst,
                None => PointerTarget::Unknown,
            },
            Ok(None) if relocations.resolver(elf.machine(), slot).is_some_and(returns_first) => {
                PointerTarget::ReturnsFirst
            }
            Ok(None) | Err(_) => PointerTarget::Unknown,
        }
    }
}

impl<S: Source> ObjectCode for CachedCode<'_, S> {
    fn machine(&self) -> Machine {
        self.code.elf.machine()
    }

    fn code(&self, address: u64) -> Vec<u8> {
        self.code.at(address)
    }

    fn function_start(&self, address: u64) -> Option<u64> {
        let next = self.starts.partition_point(|&start| start <= address);
        self.starts.get(next.checked_sub(1)?).copied()
    }

    fn function_end(&self, address: u64) -> Option<u64> {
        let next = self.starts.partition_point(|&start| start <= address);
        // Functions before the first listed one are not known. So the start of the first listed one is not the end of a
        // known function.
        let last_end = self.end.filter(|&end| address < end);
        if next == 0 { None } else { self.starts.get(next).copied().or(last_end) }
    }

    fn is_hooked(&self, address: u64) -> bool {
        self.hooked.contains(&address)
    }

    fn pointer_target(&self, slot: u64) -> PointerTarget {
        *self.slots.borrow_mut().entry(slot).or_insert_with(|| self.target_of_slot(slot))
    }
}
