//! Backward data flow: the places that hold the function's result at each instruction.

use std::collections::{BTreeMap, BTreeSet};

use super::forward::{State, if_null};
use super::graph::{Graph, Next, Node};
use super::place::{FIRST_ARGUMENT, Place, RESULT};
use super::refusal::Refusal;
use super::steps::Steps;

/// Places with a word that every path from an instruction returns. A path on which the word is null may return another word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// No path returns.
    Any,
    Places(BTreeSet<Place>),
}

impl Returned {
    /// Returns the places that are in both.
    fn meet(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, all) | (all, Self::Any) => all,
            (Self::Places(one), Self::Places(other)) => Self::Places(one.intersection(&other).copied().collect()),
        }
    }

    fn with(self, place: Option<Place>) -> Self {
        match self {
            Self::Any => Self::Any,
            Self::Places(mut places) => {
                places.extend(place);
                Self::Places(places)
            }
        }
    }
}

/// Returns the places with the returned word before each instruction.
///
/// # Errors
///
/// [`Refusal::TooLong`] after too many steps.
pub(super) fn returned(
    graph: &Graph,
    states: &BTreeMap<u64, State>,
    steps: &mut Steps,
) -> Result<BTreeMap<u64, Returned>, Refusal> {
    let predecessors = graph.predecessors();
    let mut all: BTreeMap<u64, Returned> = graph.nodes.keys().map(|at| (*at, Returned::Any)).collect();
    let mut waiting: BTreeSet<u64> = graph.nodes.keys().copied().collect();
    while let Some(at) = waiting.pop_last() {
        steps.count()?;
        let (Some(node), Some(state)) = (graph.nodes.get(&at), states.get(&at)) else { continue };
        let new = before(node, state, &all);
        if all.get(&at) != Some(&new) {
            all.insert(at, new);
            waiting.extend(predecessors.get(&at).into_iter().flatten());
        }
    }
    Ok(all)
}

fn before(node: &Node, state: &State, all: &BTreeMap<u64, Returned>) -> Returned {
    let at = |address: u64| all.get(&address).cloned().unwrap_or(Returned::Places(BTreeSet::new()));
    let after = match node.next {
        Next::Return => return Returned::Places(BTreeSet::from([RESULT])),
        Next::End => return Returned::Any,
        Next::TailCall(_) | Next::Hooked => return Returned::Places(BTreeSet::new()),
        Next::ReturnsFirst => return Returned::Places(BTreeSet::from([FIRST_ARGUMENT])),
        Next::Branch { taken, other } => {
            // If the compared place is null, it holds no block, so it stays in the set.
            let null = |address| if if_null(node) == Some(address) { state.compared } else { None };
            at(taken).with(null(taken)).meet(at(other).with(null(other)))
        }
        Next::To(next) | Next::Call(next) | Next::CallReturnsFirst(next) => at(next),
    };
    let effects = state.effects_of(node);
    let Returned::Places(after) = after else { return Returned::Any };
    let copied = effects.copy.filter(|(_, to)| after.contains(to)).map(|(from, _)| from);
    let kept = after.iter().copied().filter(|place| !effects.writes(*place));
    Returned::Places(kept.chain(copied).collect())
}
