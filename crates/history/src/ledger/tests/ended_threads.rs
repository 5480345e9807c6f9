//! Accounts of threads that have ended.

use std::collections::BTreeMap;

use memtrace_model::{AccountCounters, PartKeys, TagId};
use proptest::prelude::*;

use super::*;
use crate::account_changes::AccountChanges;
use crate::ledger::account_budget::AccountBudget;

const SETTINGS: Settings =
    Settings { parts: PartKeys::THREAD.union(PartKeys::ALLOCATOR), accounts: Some(PartKeys::THREAD), ..WIDE };

fn alloc(tid: u32, address: u64, size: u64) -> Event {
    let (address, size, allocator) = (AbsAddr(address), Bytes(size), AllocatorId(1));
    let kind = EventKind::Alloc { address, size, stack: S, allocator, tag: TagId::UNTAGGED };
    Event { pid: PID, tid: Tid(tid), tick: Tick(5), kind }
}

fn free(tid: u32, address: u64) -> Event {
    Event {
        pid: PID,
        tid: Tid(tid),
        tick: Tick(6),
        kind: EventKind::Free { address: AbsAddr(address), is_last: false },
    }
}

fn exit(tid: u32) -> Event {
    Event { pid: PID, tid: Tid(tid), tick: Tick(7), kind: EventKind::ThreadExit }
}

/// Accounts that follow from the changes that the ledger returns.
#[derive(Default)]
struct Seen(BTreeMap<Part, AccountCounters>);

impl Seen {
    fn take(&mut self, ledger: &mut Ledger) -> AccountChanges {
        let changes = ledger.take_accounts().expect("there are accounts");
        for image in &changes.images {
            for part in &image.merged {
                self.0.remove(part);
            }
            self.0.extend(image.accounts.iter().map(|state| (state.account, state.counters)));
        }
        changes
    }

    fn of(&self, tid: Tid) -> AccountCounters {
        self.0.get(&Part::WHOLE.with_thread(tid)).copied().unwrap_or_default()
    }
}

fn bytes(amount: Amount) -> u64 {
    amount.bytes.0
}

#[test]
fn threads_that_ended_first_are_merged() {
    let (mut ledger, mut seen) = (Ledger::new(SETTINGS), Seen::default());
    for tid in 1..=103 {
        ledger.apply(&alloc(tid, A + u64::from(tid) * 32, 10));
        ledger.apply(&alloc(tid, B + u64::from(tid) * 32, 1));
    }
    (1..=103_u32).for_each(|tid| ledger.apply(&free(104, B + u64::from(tid) * 32)));
    seen.take(&mut ledger);
    (1..=103).for_each(|tid| ledger.apply(&exit(tid)));
    let changes = seen.take(&mut ledger);
    let [image] = changes.images.as_slice() else { panic!("{changes:?}") };
    let mut merged = image.merged.clone();
    merged.sort_unstable();
    assert_eq!(merged, [1, 2, 3].map(|tid| Part::WHOLE.with_thread(Tid(tid))));
    let [state] = image.accounts.as_slice() else { panic!("only the sum has changed: {image:?}") };
    assert_eq!((state.account, state.peak_at), (Part::WHOLE.with_thread(Tid::ENDED), Tick(7)));
    let counters = state.counters;
    assert_eq!([counters.alloc, counters.free, counters.free_by_others].map(bytes), [33, 3, 3]);
    assert_eq!((bytes(state.marks.low), bytes(state.marks.high)), (0, 30), "they hold 30 bytes from their ends on");
    assert_eq!(seen.0.len(), 101, "the threads that ended last have accounts");
}

#[test]
fn new_thread_with_the_id_of_a_merged_one_has_its_own_account() {
    let (mut ledger, mut seen) = (Ledger::new(SETTINGS), Seen::default());
    ledger.images.budget.accounts.as_mut().unwrap().kept_threads = 0;
    [alloc(1, A, 10), exit(1)].into_iter().for_each(|event| ledger.apply(&event));
    seen.take(&mut ledger);
    assert_eq!(bytes(seen.of(Tid::ENDED).alloc), 10);
    [alloc(1, B, 7), free(1, A)].into_iter().for_each(|event| ledger.apply(&event));
    seen.take(&mut ledger);
    assert_eq!((bytes(seen.of(Tid(1)).alloc), bytes(seen.of(Tid(1)).free)), (7, 0));
    let ended = seen.of(Tid::ENDED);
    assert_eq!([ended.alloc, ended.free, ended.free_by_others].map(bytes), [10, 10, 10]);
}

#[test]
fn thread_with_the_id_of_one_that_has_ended_is_not_merged() {
    let (mut ledger, mut seen) = (Ledger::new(SETTINGS), Seen::default());
    ledger.images.budget.accounts.as_mut().unwrap().kept_threads = 1;
    [alloc(1, A, 10), exit(1)].into_iter().for_each(|event| ledger.apply(&event));
    seen.take(&mut ledger);
    // The kernel gives a new thread the ID 1, and thread 2 ends.
    [alloc(1, B, 7), alloc(2, B + 64, 1), exit(2)].into_iter().for_each(|event| ledger.apply(&event));
    let changes = seen.take(&mut ledger);
    assert!(
        changes.images.iter().all(|image| image.ended_threads.is_empty() && image.merged.is_empty()),
        "{changes:?}"
    );
    assert_eq!(bytes(seen.of(Tid(1)).alloc), 17, "both threads share an account");
    // Later, the new thread 1 ends too.
    [exit(1), alloc(3, A + 0x100, 1), exit(3)].into_iter().for_each(|event| ledger.apply(&event));
    seen.take(&mut ledger);
    assert_eq!((bytes(seen.of(Tid::ENDED).alloc), bytes(seen.of(Tid(3)).alloc)), (18, 1));
}

#[test]
fn threads_that_end_with_their_image_keep_their_accounts() {
    let (mut ledger, mut seen) = (Ledger::new(SETTINGS), Seen::default());
    for tid in 1..=300 {
        ledger.apply(&alloc(tid, A + u64::from(tid) * 32, 10));
    }
    (1..=300).for_each(|tid| ledger.apply(&exit(tid)));
    ledger.apply(&Event { pid: PID, tid: Tid(1), tick: Tick(8), kind: EventKind::Exec });
    seen.take(&mut ledger);
    assert_eq!((seen.0.len(), bytes(seen.of(Tid::ENDED).alloc)), (300, 0));
}

#[test]
fn sum_of_ended_threads_fits_into_a_full_table() {
    let (mut ledger, mut seen) = (Ledger::new(SETTINGS), Seen::default());
    let mut accounts = AccountBudget::new(PartKeys::THREAD, 2);
    accounts.kept_threads = 0;
    ledger.images.budget.accounts = Some(Box::new(accounts));
    [alloc(1, A, 10), alloc(2, B, 20), alloc(3, B + 64, 5), exit(1)].into_iter().for_each(|event| ledger.apply(&event));
    seen.take(&mut ledger);
    assert_eq!(bytes(seen.of(Tid::ENDED).alloc), 10);
    assert_eq!(ledger.losses().get(LossReason::AccountsFull), 1, "that of thread 3");
}

#[test]
fn transient_threads_need_no_more_accounts_or_stacks() {
    for level in [PartKeys::THREAD, PartKeys::NONE] {
        let mut ledger = Ledger::new(Settings { stacks: 400, accounts: Some(level), ..SETTINGS });
        let mut accounts = AccountBudget::new(level, 110);
        accounts.kept_threads = accounts.kept_threads.min(100);
        ledger.images.budget.accounts = Some(Box::new(accounts));
        for tid in 1..=5000 {
            let [address, grown] = [0, 16].map(|offset| A + u64::from(tid) * 32 + offset);
            let tentative = EventKind::TentativeFree { address: AbsAddr(address), is_last: false };
            let realloc = Event { pid: PID, tid: Tid(tid), tick: Tick(6), kind: tentative };
            let events = [alloc(tid, address, 10), realloc, alloc(tid, grown, 20), exit(tid)];
            events.into_iter().for_each(|event| ledger.apply(&event));
            // Another thread frees the block of a merged thread.
            if let Some(earlier) = tid.checked_sub(200).filter(|earlier| *earlier > 0) {
                ledger.apply(&free(6000, A + u64::from(earlier) * 32 + 16));
            }
            if tid % 5 == 0 {
                ledger.take_accounts();
            }
        }
        assert_eq!(ledger.losses().total(), 0, "{level:?}");
        let image = ledger.images.processes.get(PID).unwrap().image.as_ref().unwrap();
        // 200 threads hold a block.
        assert!(image.heap.accounts.counts().own <= 110 && image.limited_stacks() <= 210, "{level:?}");
    }
}

#[test]
fn parts_without_an_account_are_released() {
    let mut ledger = Ledger::new(SETTINGS);
    let mut accounts = AccountBudget::new(PartKeys::THREAD, 1);
    accounts.kept_threads = 0;
    ledger.images.budget.accounts = Some(Box::new(accounts));
    let mut seen = Seen::default();
    [alloc(1, A, 10), alloc(2, B, 20), exit(2)].into_iter().for_each(|event| ledger.apply(&event));
    seen.take(&mut ledger);
    let image = ledger.images.processes.get(PID).unwrap().image.as_ref().unwrap();
    assert_eq!((image.heap.accounts.counts().own, image.heap.accounts.counts().shared), (2, 0));
    assert_eq!(bytes(seen.0[&Part::WHOLE].alloc), 20);
    ledger.apply(&free(1, B));
    seen.take(&mut ledger);
    assert_eq!(bytes(seen.0[&Part::WHOLE].free), 20);
}

/// A step of the test against a simple model.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(u32, u64),
    /// The thread frees the block at this index, if there is one.
    Free(u32, usize),
    Exit(u32),
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..5u32, 1..100u64).prop_map(|(tid, size)| Step::Alloc(tid, size)),
        4 => (1..5u32, 0..20usize).prop_map(|(tid, number)| Step::Free(tid, number)),
        2 => (1..5u32).prop_map(Step::Exit),
        2 => Just(Step::Take),
    ]
}

proptest! {
    #[test]
    fn accounts_equal_those_of_a_simple_model(steps in prop::collection::vec(step(), 0..120), kept in 0..3usize) {
        let (mut ledger, mut seen) = (Ledger::new(SETTINGS), Seen::default());
        ledger.images.budget.accounts.as_mut().unwrap().kept_threads = kept;
        // Address, size and owner of each block.
        let mut blocks: Vec<(u64, u64, Tid)> = Vec::new();
        let mut model: BTreeMap<Tid, AccountCounters> = BTreeMap::new();
        // Ended threads with the number of their allocations; `None` until the next take counts it.
        let mut ended: Vec<(Tid, Option<u64>)> = Vec::new();
        for (step, address) in steps.into_iter().chain([Step::Take]).zip((A..).step_by(128)) {
            match step {
                Step::Alloc(tid, size) => {
                    ledger.apply(&alloc(tid, address, size));
                    blocks.push((address, size, Tid(tid)));
                    model.entry(Tid(tid)).or_default().alloc += Amount::one(Bytes(size));
                }
                Step::Free(tid, number) if number < blocks.len() => {
                    let (address, size, owner) = blocks.remove(number);
                    ledger.apply(&free(tid, address));
                    let counters = model.get_mut(&owner).unwrap();
                    counters.free += Amount::one(Bytes(size));
                    if owner != Tid(tid) {
                        counters.free_by_others += Amount::one(Bytes(size));
                    }
                }
                Step::Free(..) => {}
                Step::Exit(tid) => {
                    ledger.apply(&exit(tid));
                    // The ledger ignores exits of threads before the first block of the process.
                    if !model.is_empty() {
                        ended.push((Tid(tid), None));
                    }
                }
                Step::Take => {
                    let allocations = |tid: &Tid| model.get(tid).map_or(0, |counters| counters.alloc.count);
                    ended.iter_mut().for_each(|(tid, count)| *count = count.or(Some(allocations(tid))));
                    let due: Vec<_> = ended.drain(..ended.len().saturating_sub(kept)).collect();
                    let due: Vec<_> = due.into_iter().filter(|(tid, count)| *count == Some(allocations(tid))).collect();
                    for (tid, _) in due {
                        if let Some(counters) = model.remove(&tid) {
                            model.entry(Tid::ENDED).or_default().add(&counters);
                        }
                        blocks.iter_mut().filter(|(.., owner)| *owner == tid).for_each(|(.., owner)| *owner = Tid::ENDED);
                    }
                    let changes = seen.take(&mut ledger);
                    let expected: BTreeMap<_, _> =
                        model.iter().map(|(tid, counters)| (Part::WHOLE.with_thread(*tid), *counters)).collect();
                    prop_assert_eq!(&seen.0, &expected);
                    let live: Amount = expected.values().fold(Amount::default(), |sum, one| sum + one.current());
                    prop_assert_eq!(changes.live, live);
                }
            }
        }
    }
}
