//! Stacks that were finished in user space.

use rustc_hash::FxHashMap;

use crate::model::{Snapshot, Stack, StackId, Stacks};

/// Stacks that were finished in user space, by the id under which events refer to them.
///
/// The BPF programs give each stack that they copy an id of its own. Here it has the id that they would have given to
/// the finished stack, so that both have common totals.
#[derive(Clone, Debug, Default)]
pub struct FinishedStacks {
    ids: FxHashMap<StackId, StackId>,
    stacks: Stacks,
}

impl FinishedStacks {
    /// Adds the copy `copy` of a stack with the id `id`.
    pub fn add(&mut self, copy: StackId, id: StackId, stack: &Stack) {
        self.ids.insert(copy, id);
        self.stacks.insert(id, stack);
    }

    /// Adds a copy that could not be finished: it is the stack `cut`, whose frames have been sent.
    pub fn add_cut(&mut self, copy: StackId, cut: StackId) {
        self.ids.insert(copy, cut);
    }

    /// Returns true if there are no stacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Replaces the ids of copies in `snapshot` by those of the stacks.
    pub fn apply(&self, snapshot: &mut Snapshot) {
        if self.is_empty() {
            return;
        }
        for image in snapshot.images.values_mut() {
            image.rename_stacks(|id| {
                let new = *self.ids.get(&id)?;
                if let Some(stack) = self.stacks.get(new) {
                    snapshot.stacks.insert(new, &stack);
                }
                Some(new)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{
        AbsAddr, Amount, Bytes, ImageId, ImageUsage, PAGE, Pid, StackEnd, StackKey, StackUsage, Touched, Usage,
    };

    fn stack(end: StackEnd, frames: &[u64]) -> Stack {
        Stack { frames: frames.iter().map(|&frame| AbsAddr(frame)).collect(), end, taken: Duration::ZERO }
    }

    /// An image with `blocks` of 16 bytes for each stack.
    fn image(stacks: &[(u64, u64)]) -> ImageUsage {
        let usage = |&(id, count): &(u64, u64)| {
            let live = Amount { bytes: Bytes(16 * count), count };
            let usage = Usage { live, alloc: live, ..Usage::default() };
            (StackKey::from(StackId(id)), StackUsage { usage, ..StackUsage::default() })
        };
        ImageUsage { by_stack: stacks.iter().map(usage).collect(), ..ImageUsage::default() }
    }

    fn touched(page: u64, pages: u64, stack: u64) -> Touched {
        Touched { begin: AbsAddr(page * PAGE.0), pages, key: StackKey::from(StackId(stack)) }
    }

    #[test]
    fn copies_count_for_their_stacks() {
        let id = ImageId { pid: Pid(1), ordinal: 0 };
        let (whole, cut) = (stack(StackEnd::Complete, &[1, 2, 3]), stack(StackEnd::TablePending, &[1]));
        let mut before = image(&[(10, 1), (20, 2), (101, 4), (102, 8), (103, 16), (104, 32)]);
        before.touched = vec![touched(1, 1, 10), touched(2, 1, 101), touched(3, 2, 103), touched(5, 1, 20)];
        let mut snapshot = Snapshot { stacks: [(StackId(20), cut.clone())].into(), ..Snapshot::default() };
        snapshot.images.insert(id, before);

        let mut finished = FinishedStacks::default();
        finished.apply(&mut Snapshot::default());
        finished.add(StackId(101), StackId(10), &whole);
        finished.add(StackId(102), StackId(30), &whole);
        finished.add_cut(StackId(103), StackId(20));
        finished.add(StackId(105), StackId(40), &whole);
        finished.apply(&mut snapshot);

        let mut expected = image(&[(10, 1 + 4), (20, 2 + 16), (30, 8), (104, 32)]);
        expected.touched = vec![touched(1, 2, 10), touched(3, 3, 20)];
        assert_eq!(snapshot.images[&id], expected);
        assert_eq!(snapshot.stacks, [(StackId(10), whole.clone()), (StackId(20), cut), (StackId(30), whole)].into());
    }
}
