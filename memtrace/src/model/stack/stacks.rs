//! Set of stacks that stores shared callers once.

use std::hash::BuildHasher as _;
use std::time::Duration;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::{AbsAddr, Node, Stack, StackEnd, StackId, Tree};

/// Stacks by ID.
///
/// Most stacks of a process share their callers: stored separately, those of a compiler take ten times as much
/// memory.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    by_id: FxHashMap<StackId, Known>,
    calls: Tree<AbsAddr>,
    /// Recent stacks by a hash of their outermost frame, with the nodes of their frames. Consecutive stacks of a
    /// process share most of their callers, which then need no lookup.
    recent: Vec<Vec<(AbsAddr, Node)>>,
}

/// Number of recent stacks: rarely do more processes run at a time.
const RECENT: usize = 64;

/// Entry of a stack.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Time since tracing began.
    taken_ns: u64,
    leaf: Node,
    end: StackEnd,
}

const _: () = assert!(size_of::<(StackId, Known)>() == 24);

impl Stacks {
    /// Adds a stack. If it exists, the earlier of the two is kept: the BPF programs send evicted stacks again.
    pub fn insert(&mut self, id: StackId, stack: &Stack) {
        let taken_ns = u64::try_from(stack.taken.as_nanos()).unwrap_or(u64::MAX);
        if self.by_id.get(&id).is_some_and(|known| known.taken_ns <= taken_ns) {
            return;
        }
        if let Some(leaf) = self.leaf(&stack.frames) {
            self.by_id.insert(id, Known { taken_ns, leaf, end: stack.end });
        }
    }

    /// Returns the node of the innermost of these frames, which come innermost first.
    fn leaf(&mut self, frames: &[AbsAddr]) -> Option<Node> {
        let Some(outermost) = frames.last() else { return Some(Node::ROOT) };
        self.recent.resize(RECENT, Vec::new());
        let slot = FxBuildHasher.hash_one(outermost) as usize % RECENT;
        let last = &mut self.recent[slot];
        let shared = frames.iter().rev().zip(&*last).take_while(|(frame, (known, _))| *frame == known).count();
        last.truncate(shared);
        let mut node = last.last().map_or(Node::ROOT, |&(_, node)| node);
        for &frame in frames.iter().rev().skip(shared) {
            node = self.calls.push(node, frame)?;
            last.push((frame, node));
        }
        Some(node)
    }

    /// Returns the stack.
    #[must_use]
    pub fn get(&self, id: StackId) -> Option<Stack> {
        let &Known { taken_ns, leaf, end } = self.by_id.get(&id)?;
        Some(Stack { frames: self.calls.to_root(leaf).collect(), end, taken: Duration::from_nanos(taken_ns) })
    }

    /// Returns the stack's innermost call in [`Stacks::calls`], the end of its walk and its time.
    #[must_use]
    pub fn find(&self, id: StackId) -> Option<(Node, StackEnd, Duration)> {
        self.by_id.get(&id).map(|known| (known.leaf, known.end, Duration::from_nanos(known.taken_ns)))
    }

    /// Returns the end of the walk of stack `id`, or the reason for missing frames.
    #[must_use]
    pub fn end_of(&self, id: StackId) -> StackEnd {
        match self.by_id.get(&id) {
            Some(known) => known.end,
            None if id == StackId::NOT_TAKEN => StackEnd::NotTaken,
            None if id == StackId::FAILED => StackEnd::Failed,
            None => StackEnd::FramesLost,
        }
    }

    /// Returns the calls of all stacks: the root of the tree calls the outermost frame of a stack.
    #[must_use]
    pub const fn calls(&self) -> &Tree<AbsAddr> {
        &self.calls
    }

    /// Returns true if the stack exists.
    #[must_use]
    pub fn contains(&self, id: StackId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Returns the number of stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns true if there are no stacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Iterates over the IDs in no order.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + '_ {
        self.by_id.keys().copied()
    }

    /// Adds all stacks of `other`.
    pub fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let nodes = self.calls.merge(&other.calls);
        // Without this, entries inserted in the order of a larger table would cluster in a smaller one.
        self.by_id.reserve(other.len());
        for (id, mut known) in other.by_id {
            known.leaf = nodes.of(known.leaf);
            let ours = self.by_id.entry(id).or_insert(known);
            if known.taken_ns < ours.taken_ns {
                *ours = known;
            }
        }
    }
}

/// Compares the contents; the order of insertion makes no difference.
impl PartialEq for Stacks {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.ids().all(|id| self.get(id) == other.get(id))
    }
}

impl Eq for Stacks {}

impl FromIterator<(StackId, Stack)> for Stacks {
    fn from_iter<I: IntoIterator<Item = (StackId, Stack)>>(stacks: I) -> Self {
        let mut all = Self::default();
        stacks.into_iter().for_each(|(id, stack)| all.insert(id, &stack));
        all
    }
}

impl<const N: usize> From<[(StackId, Stack); N]> for Stacks {
    fn from(stacks: [(StackId, Stack); N]) -> Self {
        stacks.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(nanoseconds: u64, frames: &[u64]) -> Stack {
        Stack {
            frames: frames.iter().map(|&frame| AbsAddr(frame)).collect(),
            end: StackEnd::Complete,
            taken: Duration::from_nanos(nanoseconds),
        }
    }

    #[test]
    fn a_repeated_stack_keeps_its_earliest_time() {
        // Two rings may deliver them in either order.
        for (first, second) in [(5, 9), (9, 5)] {
            let mut stacks = Stacks::from([(StackId(7), stack(first, &[1]))]);
            stacks.merge(Stacks::from([(StackId(7), stack(second, &[1]))]));
            assert_eq!(stacks.get(StackId(7)), Some(stack(5, &[1])));
        }
    }

    #[test]
    fn stacks_are_returned_unchanged_and_share_callers() {
        let some =
            [(StackId(7), stack(1, &[3, 2, 1])), (StackId(8), stack(2, &[4, 2, 1])), (StackId(9), stack(3, &[]))];
        let stacks = Stacks::from(some.clone());
        for (id, stack) in some {
            assert_eq!(stacks.get(id), Some(stack));
        }
        assert_eq!(stacks.calls().len(), 4);
        assert_eq!((stacks.len(), stacks.get(StackId(10))), (3, None));
    }

    #[test]
    fn the_order_of_stacks_makes_no_difference() {
        let (one, other) = ((StackId(7), stack(1, &[3, 1])), (StackId(8), stack(2, &[4, 2, 1])));
        let mut merged = Stacks::from([one.clone()]);
        merged.merge(Stacks::from([other.clone()]));
        assert_eq!(merged, Stacks::from([other.clone(), one.clone()]));
        assert_ne!(merged, Stacks::from([one.clone()]));
        assert_ne!(Stacks::from([one]), Stacks::from([(StackId(7), other.1)]));
    }
}
