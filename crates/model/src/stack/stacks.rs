//! Set of stacks that stores shared callers once.

use std::hash::BuildHasher as _;
use std::time::Duration;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::{AbsAddr, Node, Stack, StackEnd, StackId, Tree};

/// Stacks by ID.
///
/// Most stacks of a process share callers. Without sharing, the stacks of a compiler take ten times as much memory.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    by_id: FxHashMap<StackId, Known>,
    /// Merged stacks: their frames were removed or left out. There can be several times more merged stacks than stacks
    /// with frames.
    merged: FxHashSet<StackId>,
    calls: Tree<AbsAddr>,
    /// Nodes of recent stacks, the outermost first, by a hash of the outermost frame. Consecutive stacks of a thread
    /// share most of their callers. Shared callers need no lookup.
    recent: Vec<Vec<Node>>,
}

/// Number of recent stacks. It is small, because most threads of a process have the same outermost frame.
const RECENT: usize = 4;

/// Entry of a stack with frames.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Time of the walk, in nanoseconds since tracing began.
    taken_ns: u64,
    leaf: Node,
    end: StackEnd,
}

const _: () = assert!(size_of::<(StackId, Known)>() == 24);

impl Stacks {
    /// Adds a stack. The BPF programs send a stack again if it was evicted from their map. If both entries of a stack
    /// have frames, the earlier entry is kept; else, the entry with frames is kept.
    pub fn insert(&mut self, id: StackId, stack: &Stack) {
        if stack.end == StackEnd::Merged {
            self.insert_merged(id);
            return;
        }
        let taken_ns = u64::try_from(stack.taken.as_nanos()).unwrap_or(u64::MAX);
        if self.by_id.get(&id).is_some_and(|known| known.taken_ns <= taken_ns) {
            return;
        }
        if let Some(leaf) = self.leaf(&stack.frames) {
            self.insert_known(id, Known { taken_ns, leaf, end: stack.end });
        }
    }

    fn insert_known(&mut self, id: StackId, known: Known) {
        self.by_id.insert(id, known);
        self.merged.remove(&id);
    }

    fn insert_merged(&mut self, id: StackId) {
        if !self.by_id.contains_key(&id) {
            self.merged.insert(id);
        }
    }

    /// Merges the stacks that `is_merged` selects: removes their frames, and sets their end to [`StackEnd::Merged`].
    pub fn merge_stacks(&mut self, is_merged: impl Fn(StackId) -> bool) {
        self.merged.extend(self.by_id.extract_if(|&id, _| is_merged(id)).map(|(id, _)| id));
        let kept = self.calls.retain(self.by_id.values().map(|known| known.leaf), |frame| frame);
        self.by_id.values_mut().for_each(|known| known.leaf = kept.of(known.leaf));
        self.recent = Vec::new();
    }

    /// Removes the IDs of merged stacks, except for the IDs that `is_kept` selects.
    pub fn forget_merged(&mut self, is_kept: impl Fn(StackId) -> bool) {
        self.merged.retain(|&id| is_kept(id));
        self.merged.shrink_to_fit();
    }

    /// Returns true if the stack exists and is not merged.
    #[must_use]
    pub fn has_frames_of(&self, id: StackId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Returns the number of merged stacks.
    #[must_use]
    pub fn merged(&self) -> usize {
        self.merged.len()
    }

    /// Returns the node of the innermost frame. `frames` has the innermost frame first.
    fn leaf(&mut self, frames: &[AbsAddr]) -> Option<Node> {
        let Some(outermost) = frames.last() else { return Some(Node::ROOT) };
        self.recent.resize(RECENT, Vec::new());
        let slot = FxBuildHasher.hash_one(outermost) as usize % RECENT;
        let last = &mut self.recent[slot];
        let calls = &mut self.calls;
        let is_equal = |frame, node| calls.get(node).is_some_and(|(_, known)| known == frame);
        let shared = frames.iter().rev().zip(&*last).take_while(|&(&frame, &node)| is_equal(frame, node)).count();
        last.truncate(shared);
        let mut node = last.last().copied().unwrap_or(Node::ROOT);
        for &frame in frames.iter().rev().skip(shared) {
            node = calls.push(node, frame)?;
            last.push(node);
        }
        Some(node)
    }

    /// Returns the stack. A merged stack has the time 0, because its time is not known.
    #[must_use]
    pub fn get(&self, id: StackId) -> Option<Stack> {
        let (leaf, end, taken) = self.find(id)?;
        Some(Stack { frames: self.calls.to_root(leaf).collect(), end, taken })
    }

    /// Returns the node of the stack's innermost call in [`Stacks::calls`], the end of the walk, and its time.
    #[must_use]
    pub fn find(&self, id: StackId) -> Option<(Node, StackEnd, Duration)> {
        match self.by_id.get(&id) {
            Some(known) => Some((known.leaf, known.end, Duration::from_nanos(known.taken_ns))),
            None => self.merged.contains(&id).then_some((Node::ROOT, StackEnd::Merged, Duration::ZERO)),
        }
    }

    /// Returns the end of the walk of stack `id`, or the reason for missing frames.
    #[must_use]
    pub fn end_of(&self, id: StackId) -> StackEnd {
        match self.find(id) {
            Some((_, end, _)) => end,
            None if id == StackId::NOT_TAKEN => StackEnd::NotTaken,
            None if id == StackId::FAILED => StackEnd::Failed,
            None if id == StackId::OTHER => StackEnd::Merged,
            None => StackEnd::FramesLost,
        }
    }

    /// Returns the tree of the calls of all stacks. Children of the root are the outermost frames.
    #[must_use]
    pub const fn calls(&self) -> &Tree<AbsAddr> {
        &self.calls
    }

    /// Returns true if the stack exists.
    #[must_use]
    pub fn contains(&self, id: StackId) -> bool {
        self.has_frames_of(id) || self.merged.contains(&id)
    }

    /// Returns the number of stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.with_frames() + self.merged()
    }

    /// Returns the number of stacks that are not merged.
    #[must_use]
    pub fn with_frames(&self) -> usize {
        self.by_id.len()
    }

    /// Returns true if there are no stacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.merged.is_empty()
    }

    /// Iterates over the IDs of all stacks in no order.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + '_ {
        self.ids_with_frames().chain(self.merged.iter().copied())
    }

    /// Iterates over the IDs of the stacks that are not merged, in no order.
    pub fn ids_with_frames(&self) -> impl Iterator<Item = StackId> + '_ {
        self.by_id.keys().copied()
    }

    /// Adds all stacks of `other`.
    pub fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let Self { by_id, merged, calls, recent: _ } = other;
        let nodes = self.calls.merge(&calls);
        drop(calls);
        // Without reserved space, entries that are inserted in the order of a larger table would cluster in a smaller table.
        self.by_id.reserve(by_id.len());
        for (id, known) in by_id {
            if self.by_id.get(&id).is_none_or(|ours| known.taken_ns < ours.taken_ns) {
                self.insert_known(id, Known { leaf: nodes.of(known.leaf), ..known });
            }
        }
        self.merged.reserve(merged.len());
        merged.into_iter().for_each(|id| self.insert_merged(id));
    }
}

/// Compares the contents. The order of insertion makes no difference.
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
        // Two rings may deliver the two stacks in either order.
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
    fn merged_stacks_keep_no_frames() {
        let some =
            [(StackId(7), stack(1, &[3, 2, 1])), (StackId(8), stack(2, &[4, 2, 1])), (StackId(9), stack(3, &[5]))];
        let mut stacks = Stacks::from(some.clone());
        stacks.merge_stacks(|id| id != StackId(8));
        assert_eq!((stacks.calls().len(), stacks.len(), stacks.merged()), (3, 3, 2));
        assert_eq!(stacks.get(StackId(8)).as_ref(), Some(&some[1].1));
        assert_eq!(stacks.get(StackId(7)), Some(Stack { end: StackEnd::Merged, ..stack(0, &[]) }));
        // The frames of stack 7 arrive again, from another shard or in the same one.
        let mut repeated = stacks.clone();
        repeated.insert(StackId(7), &stack(6, &[3, 2, 1]));
        let mut theirs = Stacks::from([(StackId(7), stack(6, &[3, 2, 1]))]);
        theirs.merge(stacks.clone());
        stacks.merge(Stacks::from([(StackId(7), stack(6, &[3, 2, 1]))]));
        for mut stacks in [stacks, theirs, repeated] {
            assert_eq!((stacks.get(StackId(7)), stacks.merged()), (Some(stack(6, &[3, 2, 1])), 1));
            stacks.forget_merged(|id| id == StackId(9));
            assert_eq!((stacks.contains(StackId(9)), stacks.len(), stacks.merged()), (true, 3, 1));
            stacks.forget_merged(|_| false);
            assert_eq!((stacks.contains(StackId(9)), stacks.len(), stacks.merged()), (false, 2, 0));
        }
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
