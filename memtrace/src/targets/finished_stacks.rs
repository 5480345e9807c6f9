//! Stack copies that user space has finished.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{EndedImage, ImageEnd, Pid, Snapshot, Stack, StackId, Tick};
use rustc_hash::{FxHashMap, FxHashSet};

/// Stack copies that user space has finished, by process and by the id of the copy. Events have the id of the copy.
///
/// The BPF programs give each copy a new id. The finished stack has the id that the BPF programs would have given it,
/// so that the copy and a complete stack with the same frames have common totals.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinishedStacks(BTreeMap<Pid, OfProcess>);

/// Finished stacks of one process.
#[derive(Clone, Debug, Default)]
struct OfProcess {
    /// Id of the finished stack and time of the copy, by the id of the copy.
    ids: FxHashMap<StackId, (StackId, Duration)>,
    stacks: FxHashMap<StackId, Stack>,
}

impl FinishedStacks {
    /// Adds a finished copy of the process `pid`. `copy` is the id of the copy, `id` the id of the finished stack.
    pub(crate) fn add(&mut self, pid: Pid, copy: StackId, id: StackId, stack: Stack) {
        let process = self.0.entry(pid).or_default();
        process.ids.insert(copy, (id, stack.taken));
        process.stacks.entry(id).or_insert(stack);
    }

    /// Adds a copy that could not be finished. Its stack is the cut stack with the id `cut`, and BPF has sent the frames of
    /// this stack.
    pub(crate) fn add_cut(&mut self, pid: Pid, copy: StackId, cut: StackId, taken: Duration) {
        self.0.entry(pid).or_default().ids.insert(copy, (cut, taken));
    }

    /// Replaces the ids of copies in `snapshot` by the ids of their stacks.
    pub(crate) fn apply(&self, snapshot: &mut Snapshot) {
        for (id, image) in &mut snapshot.images {
            let Some(process) = self.0.get(&id.pid) else { continue };
            image.rename_stacks(|copy| {
                let (new, stack) = process.find(copy)?;
                stack.into_iter().for_each(|stack| snapshot.stacks.insert(new, stack));
                Some(new)
            });
        }
    }

    /// Returns the id of the stack of a copy of `pid`, and its frames if BPF has not sent them.
    pub(crate) fn find(&self, pid: Pid, copy: StackId) -> Option<(StackId, Option<&Stack>)> {
        self.0.get(&pid)?.find(copy)
    }

    /// Returns true if the frames of all stacks of an ended image are known. Otherwise, some copies may not have
    /// arrived, or are not finished.
    pub(crate) fn completes(&self, image: &EndedImage) -> bool {
        let process = self.0.get(&image.id.pid);
        let is_known = |id: StackId| {
            !id.has_frames()
                || image.stacks.contains(id)
                || process.is_some_and(|process| process.ids.contains_key(&id))
        };
        image.usage.iter().all(|(_, usage)| usage.by_stack.keys().all(|key| is_known(key.stack)))
    }

    /// Replaces the ids of copies in an ended image. If the process has ended too, its copies are forgotten; later
    /// copies belong to another process with the same pid. Returns the number of forgotten copies.
    pub(crate) fn apply_to_ended(&mut self, image: &mut EndedImage) -> usize {
        let pid = image.id.pid;
        let Some(process) = self.0.get_mut(&pid) else { return 0 };
        for (_, usage) in &mut image.usage {
            usage.rename_stacks(|copy| {
                let (new, stack) = process.find(copy)?;
                stack.into_iter().for_each(|stack| image.stacks.insert(new, stack));
                Some(new)
            });
        }
        if image.end == ImageEnd::Exec {
            return 0;
        }
        let before = process.ids.len();
        process.ids.retain(|_, &mut (_, taken)| Tick::at(taken) > image.at);
        let forgotten = before - process.ids.len();
        let used: FxHashSet<StackId> = process.ids.values().map(|&(id, _)| id).collect();
        process.stacks.retain(|id, _| used.contains(id));
        if process.ids.is_empty() {
            self.0.remove(&pid);
        }
        forgotten
    }
}

impl OfProcess {
    /// Returns the id of the stack of a copy, and its frames if BPF has not sent them.
    fn find(&self, copy: StackId) -> Option<(StackId, Option<&Stack>)> {
        let (id, _) = *self.ids.get(&copy)?;
        Some((id, self.stacks.get(&id)))
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{
        AbsAddr, Amount, Bytes, EventClass, ImageId, ImageUsage, PAGE, Quantities, Quantity, StackEnd, StackKey,
        Stacks, Touched, UnsentStacks,
    };

    use super::*;

    const PID: Pid = Pid(1);

    fn stack(end: StackEnd, frames: &[u64]) -> Stack {
        Stack { frames: frames.iter().map(|&frame| AbsAddr(frame)).collect(), end, taken: Duration::ZERO }
    }

    /// Returns an image with blocks of 16 bytes. `stacks` has the id of each stack, and its number of blocks.
    fn image(stacks: &[(u64, u64)]) -> ImageUsage {
        let usage = |&(id, count): &(u64, u64)| {
            let live = Amount { bytes: Bytes(16 * count), count };
            let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, live).with_amount(Quantity::AllocBytes, live);
            (StackKey::from(StackId(id)), usage)
        };
        ImageUsage { by_stack: stacks.iter().map(usage).collect(), ..ImageUsage::default() }
    }

    fn touched(page: u64, pages: u64, stack: u64) -> Touched {
        Touched { begin: AbsAddr(page * PAGE.0), pages, key: StackKey::from(StackId(stack)), huge: false }
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
        finished.add(PID, StackId(101), StackId(10), whole.clone());
        finished.add(PID, StackId(102), StackId(30), whole.clone());
        finished.add_cut(PID, StackId(103), StackId(20), Duration::ZERO);
        finished.add(PID, StackId(105), StackId(40), whole.clone());
        finished.add(Pid(2), StackId(104), StackId(10), whole.clone());
        finished.apply(&mut snapshot);

        let mut expected = image(&[(10, 1 + 4), (20, 2 + 16), (30, 8), (104, 32)]);
        expected.touched = vec![touched(1, 2, 10), touched(3, 3, 20)];
        assert_eq!(snapshot.images[&id], expected);
        assert_eq!(snapshot.stacks, [(StackId(10), whole.clone()), (StackId(20), cut), (StackId(30), whole)].into());
    }
    #[test]
    fn stacks_of_a_process_are_forgotten_at_its_end() {
        let whole = stack(StackEnd::Complete, &[1, 2, 3]);
        let ended = |end| EndedImage {
            id: ImageId { pid: PID, ordinal: 0 },
            end,
            at: Tick(0),
            owner: None,
            usage: vec![(EventClass::Heap, image(&[(10, 1), (101, 4)]))],
            stacks: Stacks::default(),
            unsent: UnsentStacks::None,
        };
        let mut finished = FinishedStacks::default();
        finished.add(PID, StackId(101), StackId(10), whole.clone());
        finished.add(Pid(2), StackId(102), StackId(20), whole.clone());
        let (mut sent, mut cut) = (ended(ImageEnd::Exec), ended(ImageEnd::Exec));
        sent.stacks = [(StackId(10), whole.clone())].into();
        cut.usage[0].1 = image(&[(101, 4)]);
        assert!(finished.completes(&sent) && finished.completes(&cut));
        assert!(!FinishedStacks::default().completes(&sent) && !finished.completes(&ended(ImageEnd::Exit)));
        for end in [ImageEnd::Exec, ImageEnd::Exit] {
            let mut ended = ended(end);
            assert_eq!(finished.apply_to_ended(&mut ended), usize::from(end == ImageEnd::Exit));
            assert_eq!(ended.usage, [(EventClass::Heap, image(&[(10, 5)]))]);
            assert_eq!(ended.stacks, [(StackId(10), whole.clone())].into());
        }
        assert_eq!(finished.0.keys().collect::<Vec<_>>(), [&Pid(2)]);
    }

    #[test]
    fn copies_of_a_reused_pid_are_kept() {
        let later = Stack { taken: Duration::from_secs(1), ..stack(StackEnd::Complete, &[1, 2, 3]) };
        let ended = |at, copy| EndedImage {
            id: ImageId { pid: PID, ordinal: 0 },
            end: ImageEnd::Exit,
            at: Tick::at(Duration::from_secs(at)),
            owner: None,
            usage: vec![(EventClass::Heap, image(&[(copy, 4)]))],
            stacks: Stacks::default(),
            unsent: UnsentStacks::None,
        };
        let mut finished = FinishedStacks::default();
        finished.add(PID, StackId(101), StackId(10), stack(StackEnd::Complete, &[1, 2]));
        finished.add(PID, StackId(102), StackId(20), later.clone());
        finished.apply_to_ended(&mut ended(0, 101));
        let mut second = ended(2, 102);
        finished.apply_to_ended(&mut second);
        assert_eq!(second.usage, [(EventClass::Heap, image(&[(20, 4)]))]);
        assert_eq!(second.stacks, [(StackId(20), later)].into());
        assert!(finished.0.is_empty());
    }
}
