//! Finishes a cut walk in a stack copy, with the code and the unwind tables of the BPF programs.

use std::ops::ControlFlow;

use memtrace_common::wire::{End, MAX_FRAMES, STACK_FIRST};
use memtrace_model::{AbsAddr, Stack, StackId, split_frame};
use memtrace_unwind::lookup::{self, RuleSearch};
use memtrace_unwind::{Lookup, Machine, Memory, Position, Table, Walk};

use super::assembly::StackCopy;
use crate::kernel::unwind_maps::{Mapping, UnwindMaps};

/// Result of looking up the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeLookup {
    /// The mapping that contains the address, with its table.
    Mapping(Mapping),
    /// The object has no unwind table yet.
    Pending,
    /// User space does not know the mapping. The BPF programs may know it.
    Unknown,
}

/// Result of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishedWalk {
    /// The stack that the BPF programs would have found with all tables, and its id.
    Stack(StackId, Box<Stack>),
    /// An unwind table is still missing.
    Pending,
    /// The table page for the code at this address is still pending.
    PendingPage(AbsAddr),
    /// The BPF programs might find another stack: the copy is too short, or a mapping is unknown.
    Unknown,
}

/// Memory of the copied process.
struct CopiedMemory<'copy, F> {
    begin: u64,
    bytes: &'copy [u8],
    code: F,
    /// True if the walk has read a word that is not in the copy.
    is_short: bool,
}

impl<F> CopiedMemory<'_, F> {
    fn copied(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        self.bytes.get(offset..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
    }
}

impl<F: FnMut(AbsAddr) -> Option<u64>> Memory for CopiedMemory<'_, F> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let word = self.copied(address);
        self.is_short |= word.is_none();
        word
    }

    fn code(&mut self, address: u64) -> Option<u64> {
        let bytes = (self.code)(AbsAddr(address));
        self.is_short |= bytes.is_none();
        bytes
    }

    fn machine(&self) -> Machine {
        if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 }
    }
}

/// Tables of the copied process.
struct CopiedTables<'maps, F> {
    maps: &'maps UnwindMaps,
    code_at: F,
    /// Mapping of the last lookup. Most frames are in the same mapping as their caller.
    mapping: Mapping,
    /// Reason why the walk has no result: the last lookup that found no table.
    obstacle: Option<FinishedWalk>,
}

impl<F: FnMut(AbsAddr) -> CodeLookup> Table for CopiedTables<'_, F> {
    fn lookup(&mut self, pc: u64) -> Lookup {
        if !lookup::holds(&self.mapping, pc) {
            match (self.code_at)(AbsAddr(pc)) {
                CodeLookup::Mapping(mapping) => self.mapping = mapping,
                CodeLookup::Pending => {
                    self.obstacle = Some(FinishedWalk::Pending);
                    return Lookup::end(End::TablePending);
                }
                CodeLookup::Unknown => {
                    self.obstacle = Some(FinishedWalk::Unknown);
                    return Lookup::end(End::NoMapping);
                }
            }
        }
        match lookup::find(self.maps, &self.mapping, pc) {
            RuleSearch::Rule(number) => self.maps.rule(number).map_or(Lookup::end(End::NoRow), Lookup::rule),
            RuleSearch::Generated => Lookup::GENERATED,
            RuleSearch::NoRule(end) => {
                if end == End::TablePending {
                    self.obstacle = Some(FinishedWalk::PendingPage(AbsAddr(pc)));
                }
                Lookup::end(end)
            }
        }
    }

    /// The copy lacks the kernel's list of return addresses that uretprobes have replaced. A replaced address is in the
    /// uretprobe trampoline, which is an unknown mapping.
    fn original_return(&mut self, _slot: u64) -> Option<u64> {
        None
    }
}

impl StackCopy {
    /// Returns the address of the code where the walk was cut: the byte before the address of the last frame. This byte belongs
    /// to the call instruction.
    #[must_use]
    pub fn cut_at(&self) -> Option<AbsAddr> {
        let (AbsAddr(address), _) = split_frame(AbsAddr(*self.frames.last()?));
        Some(AbsAddr(address.wrapping_sub(1)))
    }

    /// Finishes the walk with the tables in `maps`. `code_at` returns the mapping of an address at the time of the
    /// walk. `code` returns the eight bytes of code at an address.
    pub fn finish_walk(
        &self,
        maps: &UnwindMaps,
        code_at: impl FnMut(AbsAddr) -> CodeLookup,
        code: impl FnMut(AbsAddr) -> Option<u64>,
    ) -> FinishedWalk {
        let end = &self.end;
        let position = Position { ip: end.ip, sp: end.sp, fp: end.fp, flags: end.flags, depth: end.depth };
        let mut frames = [0; MAX_FRAMES];
        for (frame, &walked) in frames.iter_mut().zip(&self.frames) {
            *frame = walked;
        }
        let mut walk = Walk::resume(position, end.seed, &self.frames, end.leaf);
        let mut memory = CopiedMemory { begin: self.begin, bytes: &self.bytes, code, is_short: false };
        let mut tables = CopiedTables { maps, code_at, mapping: Mapping::default(), obstacle: None };
        let end = loop {
            // Each step adds a frame or ends the walk, because no return address is restored.
            if let ControlFlow::Break(end) = walk.step(&mut frames, &mut memory, &mut tables) {
                break end;
            }
        };
        if let Some(obstacle) = tables.obstacle {
            return obstacle;
        }
        if memory.is_short {
            return FinishedWalk::Unknown;
        }
        let end = if end == End::NoRow { walk.end_without_row(self.end.stack_start) } else { end };
        let hash = walk.hash(end as u32);
        let id = StackId(if hash < STACK_FIRST { hash + STACK_FIRST } else { hash });
        let frames = frames.iter().take(walk.count() as usize).map(|&frame| AbsAddr(frame)).collect();
        FinishedWalk::Stack(id, Box::new(Stack { frames, end, taken: self.taken }))
    }
}
