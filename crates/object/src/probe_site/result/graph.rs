//! Control flow graph of an x86-64 function, from its entry to its returns.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, Instruction as Decoded, Mnemonic};

use super::callees::{Callees, MAX_DEPTH};
use super::refusal::Refusal;
use crate::elf::Machine;
use crate::probe_site::instruction::Flow;
use crate::probe_site::paths::{ObjectCode, PointerTarget};
use crate::probe_site::site::Cost;

/// Maximum number of instructions of a function. The largest allocator functions of glibc, jemalloc and tcmalloc have
/// less than 2,000.
const MAX_INSTRUCTIONS: usize = 4096;

/// An instruction of the function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) instruction: Decoded,
    pub(super) cost: Cost,
    pub(super) next: Next,
}

/// Successors of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    To(u64),
    /// A call that may return to this address.
    Call(u64),
    /// A call that returns to this address. The called function returns its first argument, as memset does.
    CallReturnsFirst(u64),
    Branch {
        taken: u64,
        other: u64,
    },
    Return,
    /// The path ends: a trap, or a call that does not return.
    End,
    /// A jump to another function, which returns to the caller.
    TailCall(u64),
    /// A jump to a hooked function. Its own probe records the call.
    Hooked,
    /// A jump to a function that returns its first argument, such as memset.
    ReturnsFirst,
}

impl Next {
    pub(super) fn is_call(self) -> bool {
        matches!(self, Self::Call(_) | Self::CallReturnsFirst(_))
    }

    /// Returns true if the instruction leaves the function, by a return or by a jump to another function.
    pub(super) fn leaves(self) -> bool {
        matches!(self, Self::Return | Self::TailCall(_) | Self::Hooked | Self::ReturnsFirst)
    }

    /// Returns the addresses of the successors in the function.
    pub(super) fn addresses(self) -> impl Iterator<Item = u64> {
        let (first, second) = match self {
            Self::To(address) | Self::Call(address) | Self::CallReturnsFirst(address) => (Some(address), None),
            Self::Branch { taken, other } => (Some(taken), Some(other)),
            Self::Return | Self::End | Self::TailCall(_) | Self::Hooked | Self::ReturnsFirst => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Instructions that can be reached from the entry, by address.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) entry: u64,
    pub(super) nodes: BTreeMap<u64, Node>,
}

impl Graph {
    /// Builds the graph by following all paths from `entry`. The code at the addresses in `parts` belongs to the
    /// function, even if a symbol or table says that another function begins there.
    pub(super) fn of<A: ObjectCode>(
        object: &A,
        callees: &Callees<'_, A>,
        entry: u64,
        parts: &BTreeSet<u64>,
    ) -> Result<Self, Refusal> {
        let mut nodes = BTreeMap::new();
        let mut waiting = vec![entry];
        while let Some(at) = waiting.pop() {
            if nodes.contains_key(&at) {
                continue;
            }
            if nodes.len() >= MAX_INSTRUCTIONS {
                return Err(Refusal::TooLong);
            }
            let bytes = object.code(at);
            let decoded = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE).decode();
            let instruction = Machine::X86_64.decode(&bytes, at).ok_or(Refusal::Undecodable(at))?;
            let after = decoded.next_ip();
            let next = match instruction.flow {
                Flow::Next => Next::To(after),
                Flow::Branch(target) if object.is_hooked(target) => return Err(Refusal::TailCall(at)),
                Flow::Branch(taken) => Next::Branch { taken, other: after },
                Flow::Jump(target) => jump(object, at, target, parts)?,
                Flow::Call(_) if callees.never_returns_to(at, after, &bytes, instruction.flow, MAX_DEPTH) => Next::End,
                Flow::Call(target) => call(object, (at, target, after), &bytes)?,
                Flow::Indirect => return Err(Refusal::IndirectJump(at)),
                Flow::Return => Next::Return,
                Flow::Trap => Next::End,
                Flow::Away if decoded.mnemonic() == Mnemonic::Syscall => Next::To(after),
                Flow::Away => return Err(Refusal::SystemCall(at)),
            };
            waiting.extend(next.addresses());
            nodes.insert(at, Node { instruction: decoded, cost: instruction.cost, next });
        }
        Ok(Self { entry, nodes })
    }

    /// Ends the paths at these calls, and removes instructions that can no longer be reached.
    pub(super) fn end_at(&mut self, calls: &[u64]) {
        for call in calls {
            self.nodes.entry(*call).and_modify(|node| node.next = Next::End);
        }
        let reached = self.reach([self.entry], |_| true);
        self.nodes.retain(|at, _| reached.contains(at));
    }

    /// Returns the addresses of an instruction's successors.
    pub(super) fn after(&self, at: u64) -> impl Iterator<Item = u64> {
        self.nodes.get(&at).into_iter().flat_map(|node| node.next.addresses())
    }

    /// Returns the instructions that can be reached from `begin`. Paths end at instructions that `goes_on` rejects.
    pub(super) fn reach(&self, begin: impl IntoIterator<Item = u64>, goes_on: impl Fn(u64) -> bool) -> BTreeSet<u64> {
        reach_by(begin, |at, waiting| {
            if goes_on(at) {
                waiting.extend(self.after(at));
            }
        })
    }

    /// Returns the instructions that can reach one of `ends`, including `ends`.
    pub(super) fn reach_backwards(&self, ends: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
        let predecessors = self.predecessors();
        reach_by(ends, |at, waiting| waiting.extend(predecessors.get(&at).into_iter().flatten()))
    }

    /// Returns the predecessors of each instruction, by address.
    pub(super) fn predecessors(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (at, node) in &self.nodes {
            node.next.addresses().for_each(|next| all.entry(next).or_default().push(*at));
        }
        all
    }
}

/// Returns the addresses that can be reached from `begin`. `add_next` adds the neighbours of an address.
fn reach_by(begin: impl IntoIterator<Item = u64>, add_next: impl Fn(u64, &mut Vec<u64>)) -> BTreeSet<u64> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<u64> = begin.into_iter().collect();
    while let Some(at) = waiting.pop() {
        if reached.insert(at) {
            add_next(at, &mut waiting);
        }
    }
    reached
}

/// Returns the successors of the call at `at`, which may return to `after`.
fn call(object: &impl ObjectCode, (at, target, after): (u64, Option<u64>, u64), bytes: &[u8]) -> Result<Next, Refusal> {
    // With result sites, no pending call marks the outer call, so a nested call of a hooked function would count too.
    if target.is_some_and(|target| object.is_hooked(target)) {
        return Err(Refusal::CallsHooked(at));
    }
    let slot = match target {
        Some(target) => Machine::X86_64.slot(&object.code(target), target),
        None => Machine::X86_64.pointer_of(bytes, at),
    };
    match slot.map(|slot| object.pointer_target(slot)) {
        Some(PointerTarget::Hooked) => Err(Refusal::CallsHooked(at)),
        Some(PointerTarget::Code(target)) if object.is_hooked(target) => Err(Refusal::CallsHooked(at)),
        Some(PointerTarget::ReturnsFirst) => Ok(Next::CallReturnsFirst(after)),
        _ => Ok(Next::Call(after)),
    }
}

/// Returns the successors of the jump at `at` to `target`.
fn jump(object: &impl ObjectCode, at: u64, target: u64, parts: &BTreeSet<u64>) -> Result<Next, Refusal> {
    let slot = Machine::X86_64.slot(&object.code(target), target);
    let target = match slot.map(|slot| object.pointer_target(slot)) {
        None => target,
        Some(PointerTarget::Code(target)) => target,
        Some(PointerTarget::Hooked) => return Ok(Next::Hooked),
        Some(PointerTarget::NeverReturns) => return Ok(Next::End),
        Some(PointerTarget::ReturnsFirst) => return Ok(Next::ReturnsFirst),
        Some(PointerTarget::Unknown) => return Err(Refusal::TailCall(at)),
    };
    if object.is_hooked(target) {
        return Ok(Next::Hooked);
    }
    let is_function = object.function_start(target) == Some(target) && !parts.contains(&target);
    Ok(if is_function { Next::TailCall(target) } else { Next::To(target) })
}
