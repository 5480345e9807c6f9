//! Live amounts by the epoch of their allocation.

use memtrace_model::{Delta, Epoch};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(u8, u8),
    /// An allocation from before the last mark, because its record arrives late.
    LateAlloc(u8, u8),
    Free(u8),
    FailedRealloc(u8),
    Exit,
    Delta,
    Mark,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..12_u8, 0..3_u8).prop_map(|(address, stack)| Step::Alloc(address, stack)),
        1 => (0..12_u8, 0..3_u8).prop_map(|(address, stack)| Step::LateAlloc(address, stack)),
        6 => (0..12_u8).prop_map(Step::Free),
        1 => (0..12_u8).prop_map(Step::FailedRealloc),
        1 => Just(Step::Exit),
        2 => Just(Step::Delta),
        2 => Just(Step::Mark),
    ]
}

/// Live amounts by stack. Changes wrap below zero.
type ByStack = BTreeMap<StackId, Amount>;

/// Changes within one epoch. `live`: changes of the live amounts. `earlier`: the part of these changes by blocks
/// from earlier epochs.
#[derive(Default)]
struct Changes {
    live: ByStack,
    earlier: BTreeMap<(StackId, Epoch), Amount>,
}

impl Changes {
    fn add(&mut self, delta: &Delta) {
        for usage in delta.usage.values().flat_map(BTreeMap::values) {
            for (key, change) in &usage.by_stack {
                *self.live.entry(key.stack).or_default() += change.live();
            }
            for (&(key, epoch), &change) in &usage.by_epoch {
                *self.earlier.entry((key.stack, epoch)).or_default() += change;
            }
        }
    }
}

/// Returns the live amounts of blocks that were allocated since the start of `epoch`. `changes`: changes of each
/// epoch.
fn growth(changes: &[Changes], epoch: usize) -> ByStack {
    let mut growth = ByStack::new();
    for changes in &changes[epoch..] {
        for (&stack, &change) in &changes.live {
            *growth.entry(stack).or_default() += change;
        }
        for (&(stack, of), &change) in &changes.earlier {
            if (of.0 as usize) < epoch {
                *growth.entry(stack).or_default() -= change;
            }
        }
    }
    growth.retain(|_, amount| *amount != Amount::default());
    growth
}

proptest! {
    #[test]
    fn growth_between_marks_is_exact(
        steps in prop::collection::vec(any_step(), 0..150),
        deferral in prop::option::of(0..40_u32),
    ) {
        let mut story = Story(Ledger::new(WIDE).with_deltas());
        if let Some(age) = deferral {
            story.0.defer_stacks(Tick(age).since_start());
        }
        let mut live: BTreeMap<u64, (StackId, Tick)> = BTreeMap::new();
        let mut changes = vec![Changes::default()];
        let mut marks = Vec::new();
        let stack = |number: u8| StackId(100 + u64::from(number));
        for (tick, step) in (1..).zip(steps.into_iter().chain([Step::Mark])) {
            match step {
                Step::Alloc(address, number) => {
                    story = story.alloc_at(tick, address.into(), 8, stack(number));
                    live.insert(address.into(), (stack(number), Tick(tick)));
                }
                Step::LateAlloc(address, number) => {
                    let before = marks.last().map_or(0, |mark: &Tick| mark.0);
                    story = story.alloc_at(before, address.into(), 8, stack(number));
                    live.insert(address.into(), (stack(number), Tick(before)));
                }
                Step::Free(address) => {
                    story = story.free(address.into());
                    live.remove(&address.into());
                }
                Step::FailedRealloc(address) => story = story.free_tentatively(T1, address.into()).undo_free(T1, address.into()),
                Step::Exit => {
                    story = story.exit(tick);
                    live.clear();
                    story.0.take_ended();
                }
                Step::Delta => changes.last_mut().unwrap().add(&story.0.take_delta(Tick(tick))),
                Step::Mark => {
                    let mark = Tick(tick);
                    story.0.send_stacks();
                    changes.last_mut().unwrap().add(&story.0.take_delta(mark));
                    for (epoch, start) in (1..).zip(&marks) {
                        let mut expected = ByStack::new();
                        for (stack, _) in live.values().filter(|(_, tick)| tick > start) {
                            *expected.entry(*stack).or_default() += Amount::one(Bytes(8));
                        }
                        prop_assert_eq!(growth(&changes, epoch), expected, "epoch {}", epoch);
                    }
                    story.0.begin_epoch(mark);
                    marks.push(mark);
                    changes.push(Changes::default());
                }
            }
        }
        prop_assert_eq!(story.0.losses().total(), story.0.losses().get(LossReason::FreeUnseen));
    }
}

#[test]
fn deltas_without_marks_have_no_epochs() {
    let mut story = Story(Ledger::new(WIDE).with_deltas()).alloc(A, 10, S).alloc(B, 20, S).free(A);
    let delta = story.0.take_delta(NOW);
    assert!(delta.usage.values().flat_map(BTreeMap::values).all(|usage| usage.by_epoch.is_empty()));
}
