//! Result sites: instructions of an allocator function at which registers hold both the requested size and the returned block.
//!
//! A probe at a result site replaces the probes at the entry and at the return. Every path from the entry to a return of a block
//! passes exactly one result site at which the register has a block. This is proved by data flow analysis on all paths of the
//! function: [`forward`] follows the arguments and the stack pointer, [`backward`] finds the registers with the returned word,
//! and [`selection`] chooses instructions and checks each path. On rare paths, no register has the size when the block is known.
//! Such a path has a size site before its result site: an instruction at which a register still has the size.
//!
//! A hit with a null block does not count, so a result site may be before the function's test for a failure.

mod backward;
mod callees;
mod forward;
mod graph;
mod place;
mod refusal;
mod selection;
mod sites;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use super::paths::ObjectCode;
use crate::elf::Machine;
use callees::Callees;
use forward::{State, Value};
use graph::{Graph, Next, Node};
use steps::Steps;

pub use place::GeneralRegister;
pub use refusal::Refusal;
pub use selection::{MAX_LOWERED, MAX_SAVED};
pub(crate) use sites::AnalysedCode;
pub(crate) use sites::RequestedSize;
pub(crate) use sites::ResultSites;

/// Maximum number of rounds. Each round finds parts of the function, or calls that do not return. The functions of
/// glibc need three.
const MAX_ROUNDS: usize = 32;

/// Finds result sites in an object.
pub(crate) struct Finder<'a, A> {
    object: &'a A,
    callees: Callees<'a, A>,
}

impl<'a, A: ObjectCode> Finder<'a, A> {
    pub(crate) fn new(object: &'a A) -> Self {
        Self { object, callees: Callees::new(object) }
    }

    /// Finds the result sites of the function at `entry`.
    ///
    /// # Errors
    ///
    /// If there is no proof that the sites see each result once.
    pub(crate) fn find(&mut self, entry: u64, size: RequestedSize) -> Result<ResultSites, Refusal> {
        if self.object.machine() != Machine::X86_64 {
            return Err(Refusal::Architecture);
        }
        let mut steps = Steps::default();
        let (graph, states) = self.known_graph(entry, &mut steps)?;
        let size = match size {
            RequestedSize::Argument(number) => Value::Argument(number),
            RequestedSize::Product(one, other) => Value::Product(one.min(other), one.max(other)),
        };
        selection::choose(&graph, &states, size, &mut steps)
    }

    /// Returns the graph of a function, and the state before each instruction. The graph has no paths after calls
    /// that do not return.
    fn known_graph(&mut self, entry: u64, steps: &mut Steps) -> Result<(Graph, BTreeMap<u64, State>), Refusal> {
        let Self { object, callees } = self;
        callees.begin();
        let mut parts = BTreeSet::new();
        let mut graph = Graph::of(*object, callees, entry, &parts)?;
        for _ in 0..MAX_ROUNDS {
            let states = forward::states(&graph, steps)?;
            // At a tail call the frame would be gone. If it remains, the target is a part of the function that the
            // compiler has moved.
            let part = |(at, node): (&u64, &Node)| match node.next {
                Next::TailCall(target) if states.get(at).is_some_and(|state| state.stack != 0) => Some(target),
                _ => None,
            };
            let new: Vec<u64> = graph.nodes.iter().filter_map(part).collect();
            if !new.is_empty() {
                parts.extend(new);
                graph = Graph::of(*object, callees, entry, &parts)?;
                continue;
            }
            let never_returns = |(at, node): (&u64, &Node)| {
                let Next::Call(after) = node.next else { return None };
                let first = states.get(at).and_then(State::first_argument)?;
                callees.never_returns_with(*at, after, first).then_some(*at)
            };
            let ended: Vec<u64> = graph.nodes.iter().filter_map(never_returns).collect();
            if ended.is_empty() {
                return Ok((graph, states));
            }
            graph.end_at(&ended);
        }
        Err(Refusal::TooLong)
    }
}

#[cfg(test)]
mod tests;
