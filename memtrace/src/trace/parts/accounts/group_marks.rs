//! Tests of the water marks of groups with several images. A ledger counts the marks for [`AccountGroups`].

use std::collections::BTreeMap;

use memtrace_history::WaterMarks;
use memtrace_history::accounts::{AccountGroups, AccountKey, KeyPart};
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_model::{
    AbsAddr, AllocatorId, Amount, Bytes, Event, EventKind, MarkBounds, PartKeys, Pid, StackId, TagId, Tick, Tid,
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Allocation: process, allocator and size.
    Alloc(u32, u16, u64),
    /// Free of the block with this index in [`Run::blocks`], if there is one.
    Free(usize),
    /// Failed realloc of the block with this index. Before it fails, another process of the same parity
    /// allocates this size.
    FailedRealloc(usize, u64),
    Exit(u32),
    Take,
    Reset,
}

/// Returns steps of four processes. Some of the processes end if `has_ends` is true.
fn steps(has_ends: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..4u32, 0..2u16, 1..1000u64).prop_map(|(pid, id, size)| Step::Alloc(pid, id, size)),
        6 => (0..30usize).prop_map(Step::Free),
        2 => (0..30usize, 1..1000u64).prop_map(|(number, size)| Step::FailedRealloc(number, size)),
        if has_ends { 1 } else { 0 } => (0..4u32).prop_map(Step::Exit),
        3 => Just(Step::Take),
        1 => Just(Step::Reset),
    ];
    prop::collection::vec(step, 0..150)
}

/// Expected live amount and water marks of a group.
#[derive(Debug, Default)]
struct Known {
    live: Amount,
    marks: WaterMarks,
}

/// A ledger, the groups of its accounts, and the expected amounts. The accounts are grouped by the parity of the pid, or by
/// allocator.
struct Run {
    ledger: Ledger,
    groups: AccountGroups,
    level: PartKeys,
    known: BTreeMap<String, Known>,
    /// Live blocks: process, allocator, address and size.
    blocks: Vec<(u32, u16, u64, u64)>,
    next: u64,
}

impl Run {
    fn new(level: PartKeys) -> Self {
        let settings = Settings {
            parts: PartKeys::THREAD.union(PartKeys::ALLOCATOR),
            accounts: Some(level),
            ..Settings::UNLIMITED
        };
        let (known, blocks) = Default::default();
        Self { ledger: Ledger::new(settings), groups: AccountGroups::new(100), level, known, blocks, next: 0x1000 }
    }

    fn name(&self, pid: u32, allocator: u16) -> String {
        match self.level {
            PartKeys::ALLOCATOR => format!("allocator {allocator}"),
            _ => format!("parity {}", pid % 2),
        }
    }

    fn event(&mut self, pid: u32, kind: EventKind) {
        self.ledger.apply(&Event { pid: Pid(100 + pid), tid: Tid(100 + pid), tick: Tick(5), kind });
    }

    fn alloc(&mut self, pid: u32, id: u16, size: u64) {
        self.next += 64;
        let (address, bytes, allocator) = (AbsAddr(self.next), Bytes(size), AllocatorId(1 + id));
        let (stack, tag) = (StackId::NOT_TAKEN, TagId::UNTAGGED);
        self.event(pid, EventKind::Alloc { address, size: bytes, stack, allocator, tag });
        self.blocks.push((pid, id, self.next, size));
        let known = self.known.entry(self.name(pid, id)).or_default();
        known.live += Amount::one(bytes);
        known.marks.raise(known.live);
    }

    fn removed(&mut self, (pid, id, _, size): (u32, u16, u64, u64)) {
        let known = self.known.entry(self.name(pid, id)).or_default();
        known.live -= Amount::one(Bytes(size));
        known.marks.lower(known.live);
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Alloc(pid, id, size) => self.alloc(pid, id, size),
            Step::Free(number) if number < self.blocks.len() => {
                let block = self.blocks.remove(number);
                self.event(block.0, EventKind::Free { address: AbsAddr(block.2), is_last: false });
                self.removed(block);
            }
            Step::FailedRealloc(number, size) if number < self.blocks.len() => {
                let (pid, id, address, _) = self.blocks[number];
                let address = AbsAddr(address);
                self.event(pid, EventKind::TentativeFree { address, is_last: false });
                self.alloc((pid + 2) % 4, id, size);
                self.event(pid, EventKind::UndoFree { address });
            }
            Step::Free(_) | Step::FailedRealloc(..) => {}
            Step::Exit(pid) => {
                self.event(pid, EventKind::Exit);
                let held: Vec<_> = self.blocks.extract_if(.., |block| block.0 == pid).collect();
                held.into_iter().for_each(|block| self.removed(block));
            }
            Step::Take => self.take(),
            Step::Reset => {
                self.take();
                self.groups.reset_marks();
                self.known.values_mut().for_each(|known| known.marks = WaterMarks::at(known.live));
            }
        }
    }

    fn take(&mut self) {
        let changes = self.ledger.take_accounts().expect("there are accounts");
        let level = self.level;
        self.groups.apply(changes, |id, part| {
            let name = match level {
                PartKeys::ALLOCATOR => format!("allocator {}", part.allocator().expect("by allocator").0 - 1),
                _ => format!("parity {}", id.pid.0 % 2),
            };
            Some(AccountKey([KeyPart::Named(name.into())].into()))
        });
        self.ledger.group_accounts(self.groups.take_members());
    }

    /// Asserts that the marks are within the bounds of the groups. If `is_exact` is true, the bounds must equal the
    /// marks.
    fn check(&self, is_exact: bool) {
        let name = |key: &AccountKey| match &key.0[0] {
            KeyPart::Named(name) => vec![name.as_ref().to_owned()],
            other => panic!("{other:?}"),
        };
        for (names, account) in self.groups.by_name(name, false) {
            let Known { live, marks } = &self.known[&names[0]];
            let MarkBounds { low, high } = account.marks.expect("groups have marks");
            assert_eq!(account.live, *live);
            for (bounds, mark) in [(low, marks.low), (high, marks.high)] {
                let (least, most) = (bounds.at_least, bounds.at_most);
                assert!(least.bytes <= mark.bytes && mark.bytes <= most.bytes, "{account:?}, not {marks:?}");
                assert!(least.count <= mark.count && mark.count <= most.count, "{account:?}, not {marks:?}");
                assert!(!is_exact || least == most, "{account:?} is not exact");
            }
        }
    }
}

const LEVELS: [PartKeys; 2] = [PartKeys::NONE, PartKeys::ALLOCATOR];

proptest! {
    #[test]
    fn groups_of_running_processes_have_exact_marks(steps in steps(false), level in prop::sample::select(&LEVELS)) {
        let mut run = Run::new(level);
        for pid in 0..4 {
            (0..2).for_each(|id| run.alloc(pid, id, 10));
        }
        // The accounts get names, and become members of their groups after the next changes.
        [Step::Take, Step::Take, Step::Reset].into_iter().for_each(|step| run.apply(step));
        for step in steps.into_iter().chain([Step::Take]) {
            run.apply(step);
            if matches!(step, Step::Take | Step::Reset) {
                run.check(true);
            }
        }
    }

    #[test]
    fn groups_of_processes_that_start_and_end_have_marks_within_bounds(
        steps in steps(true),
        level in prop::sample::select(&LEVELS),
    ) {
        let mut run = Run::new(level);
        for step in steps.into_iter().chain([Step::Take]) {
            run.apply(step);
            if matches!(step, Step::Take | Step::Reset) {
                run.check(false);
            }
        }
    }
}
