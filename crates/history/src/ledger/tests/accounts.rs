//! Accounts of threads, allocators and processes.

use memtrace_model::{ImageEnd, PartKeys, TagId};

use super::*;
use crate::account_changes::{AccountState, ImageAccounts, WaterMarks};
use crate::ledger::account_budget::AccountBudget;

fn story(level: PartKeys) -> Story {
    Story::with(Settings { parts: PartKeys::THREAD.union(PartKeys::ALLOCATOR), accounts: Some(level), ..WIDE })
}

impl Story {
    fn alloc_by(self, tid: Tid, address: u64, size: u64, allocator: u16) -> Self {
        let (address, size, allocator) = (AbsAddr(address), Bytes(size), AllocatorId(allocator));
        self.event(PID, tid, 5, EventKind::Alloc { address, size, stack: S, allocator, tag: TagId::UNTAGGED })
    }

    fn free_by(self, tid: Tid, address: u64) -> Self {
        self.event(PID, tid, 6, EventKind::Free { address: AbsAddr(address), is_last: false })
    }

    /// Takes the accounts of the only image.
    fn take(&mut self) -> ImageAccounts {
        let changes = self.0.take_accounts().expect("there are accounts");
        assert_eq!(changes.live, self.0.live());
        let [image] = changes.images.try_into().expect("one image has changed");
        image
    }

    fn take_one(&mut self) -> AccountState {
        let [account] = self.take().accounts.try_into().expect("one account has changed");
        account
    }
}

fn amount((bytes, count): (u64, u64)) -> Amount {
    Amount { bytes: Bytes(bytes), count }
}

fn marks(low: (u64, u64), high: (u64, u64)) -> WaterMarks {
    WaterMarks { low: amount(low), high: amount(high) }
}

#[test]
fn blocks_count_for_the_account_that_allocated_them() {
    let both = |tid, id| Part::WHOLE.with_thread(tid).with_allocator(AllocatorId(id));
    let levels = [
        (PartKeys::NONE, vec![Part::WHOLE]),
        (PartKeys::THREAD, vec![Part::WHOLE.with_thread(T1), Part::WHOLE.with_thread(T2)]),
        (
            PartKeys::ALLOCATOR,
            vec![Part::WHOLE.with_allocator(AllocatorId(1)), Part::WHOLE.with_allocator(AllocatorId(2))],
        ),
        (PartKeys::THREAD.union(PartKeys::ALLOCATOR), vec![both(T1, 1), both(T2, 2)]),
    ];
    for (level, parts) in levels {
        let mut story = story(level).alloc_by(T1, A, 10, 1).alloc_by(T2, B, 20, 2).free_by(T2, A);
        let accounts = story.take().accounts;
        assert_eq!(accounts.iter().map(|account| account.account).collect::<Vec<_>>(), parts, "{level:?}");
        let others: u64 = accounts.iter().map(|account| account.counters.free_by_others.bytes.0).sum();
        assert_eq!(others, 10, "{level:?}");
        let high: Vec<u64> = accounts.iter().map(|account| account.marks.high.bytes.0).collect();
        assert_eq!(high, if parts.len() == 1 { vec![30] } else { vec![10, 20] });
    }
}

#[test]
fn marks_start_again_when_they_are_taken() {
    let mut story = story(PartKeys::NONE).alloc_by(T1, A, 10, 1).alloc_by(T1, B, 20, 1).free_by(T1, A);
    let first = story.take_one();
    assert_eq!((first.marks, first.peak_at), (marks((0, 0), (30, 2)), Tick(5)));
    let mut story = story.free_by(T1, B).alloc_by(T1, A, 5, 1);
    let second = story.take_one();
    assert_eq!((second.marks, second.counters.alloc), (marks((0, 0), (20, 1)), amount((35, 3))));
    let changes = story.0.take_accounts().expect("there are accounts");
    assert_eq!((changes.images.len(), changes.marks), (0, marks((5, 1), (5, 1))), "nothing has changed");
}

#[test]
fn failed_realloc_is_no_free() {
    let mut story = story(PartKeys::THREAD).alloc_by(T1, A, 10, 1).free_tentatively(T2, A).undo_free(T2, A);
    let account = story.take_one();
    assert_eq!((account.counters.free, account.counters.free_by_others), (amount((0, 0)), amount((0, 0))));
    assert_eq!(account.counters.current(), amount((10, 1)));
    let mut story = story.free_tentatively(T1, B);
    assert_eq!(story.take_one().counters.unmatched_frees, 1);
    assert_eq!(story.undo_free(T1, B).take_one().counters.unmatched_frees, 0);
}

#[test]
fn failed_realloc_changes_no_mark() {
    let mut story = story(PartKeys::THREAD).alloc_by(T1, A, 100, 1).alloc_by(T2, B, 7, 1).free_by(T2, B);
    story.take();
    // Another thread frees and allocates while the realloc is in progress.
    let story = story.alloc_by(T1, B, 30, 1).free_tentatively(T1, A).free_by(T2, B).undo_free(T1, A);
    let mut story = story.alloc_by(T1, B, 5, 1);
    let changes = story.0.take_accounts().expect("there are accounts");
    let expected = marks((100, 1), (130, 2));
    assert_eq!((changes.images[0].accounts[0].marks, changes.marks), (expected, expected));
    // A tentative free that is not undone changes the marks like any other free.
    let mut story = story.free_tentatively(T1, A).alloc_by(T1, A + 64, 300, 1);
    let changes = story.0.take_accounts().expect("there are accounts");
    let expected = marks((5, 1), (305, 2));
    assert_eq!((changes.images[0].accounts[0].marks, changes.marks), (expected, expected));
}

#[test]
fn failed_realloc_after_a_take_is_no_change() {
    let mut story = story(PartKeys::THREAD).alloc_by(T1, A, 100, 1);
    story.take();
    let mut story = story.free_tentatively(T1, A).undo_free(T1, A);
    let changes = story.0.take_accounts().expect("there are accounts");
    let expected = marks((100, 1), (100, 1));
    assert_eq!((changes.images[0].accounts[0].marks, changes.marks), (expected, expected));
}

#[test]
fn unmatched_frees_count_for_the_freeing_thread() {
    let mut story = story(PartKeys::THREAD).alloc_by(T1, A, 10, 1).free_by(T2, B).free_by(T2, B + 16);
    let accounts = story.take().accounts;
    let of = |tid| accounts.iter().find(|account| account.account == Part::WHOLE.with_thread(tid)).unwrap().counters;
    assert_eq!((of(T1).unmatched_frees, of(T2).unmatched_frees, of(T2).alloc), (0, 2, amount((0, 0))));
}

#[test]
fn lost_free_is_counted_when_the_address_is_reused() {
    let mut story = story(PartKeys::NONE).alloc_by(T1, A, 10, 1).alloc_by(T1, A, 20, 1);
    let counters = story.take_one().counters;
    assert_eq!((counters.alloc, counters.free), (amount((30, 2)), amount((10, 1))));
}

#[test]
fn ended_images_have_their_last_changes() {
    let mut story = story(PartKeys::NONE).alloc_by(T1, A, 10, 1);
    assert!(!story.0.has_ended_accounts());
    assert_eq!(story.take().ended, None);
    let mut story = story.alloc_by(T1, B, 20, 1).exec().alloc_by(T1, A, 7, 1);
    assert!(story.0.has_ended_accounts());
    let changes = story.0.take_accounts().expect("there are accounts");
    let [ended, running] = changes.images.as_slice() else { panic!("{changes:?}") };
    assert_eq!((ended.ended, ended.accounts[0].counters.alloc), (Some(ImageEnd::Exec), amount((30, 2))));
    assert_eq!((running.ended, running.accounts[0].counters.alloc), (None, amount((7, 1))));
    assert_eq!((changes.live, changes.marks), (amount((7, 1)), marks((0, 0), (30, 2))));
}

#[test]
fn accounts_beyond_the_maximum_are_those_of_their_image() {
    let mut story = story(PartKeys::THREAD);
    story.0.images.budget.accounts = Some(Box::new(AccountBudget::new(PartKeys::THREAD, 1)));
    let story = story.alloc_by(T1, A, 10, 1).alloc_by(T2, B, 20, 1).alloc_by(T2, B + 64, 30, 1);
    let mut story = story.free_by(T1, B);
    let accounts = story.take().accounts;
    let of = |part| accounts.iter().find(|account| account.account == part).unwrap().counters;
    assert_eq!(of(Part::WHOLE.with_thread(T1)).alloc, amount((10, 1)));
    let others = of(Part::WHOLE);
    assert_eq!((others.alloc, others.free, others.free_by_others), (amount((50, 2)), amount((20, 1)), amount((20, 1))));
    assert_eq!(story.lost(LossReason::AccountsFull), 1);
    // The next image has room.
    let mut story = story.exec();
    assert_eq!(story.take().ended, Some(ImageEnd::Exec));
    let mut story = story.alloc_by(T2, A, 1, 1);
    assert_eq!(story.take_one().account, Part::WHOLE.with_thread(T2));
}

#[test]
fn each_account_beyond_the_maximum_is_one_loss() {
    let mut story = story(PartKeys::THREAD);
    story.0.images.budget.accounts = Some(Box::new(AccountBudget::new(PartKeys::THREAD, 1)));
    let alloc = |pid, tid, address, stack| {
        let (address, size, allocator) = (AbsAddr(address), Bytes(10), AllocatorId(1));
        Event {
            pid,
            tid,
            tick: Tick(5),
            kind: EventKind::Alloc { address, size, stack, allocator, tag: TagId::UNTAGGED },
        }
    };
    let (other, third) = (Pid(500), Pid(600));
    story.0.apply(&alloc(PID, T1, A, S));
    [S, R].into_iter().zip([A, B]).for_each(|(stack, address)| story.0.apply(&alloc(other, T2, address, stack)));
    let mut story = story.event(other, T2, 6, EventKind::Free { address: AbsAddr(77), is_last: false });
    assert_eq!(story.lost(LossReason::AccountsFull), 1);
    // The end of the process releases only the account of this process.
    story = story.event(other, T2, 7, EventKind::Exit);
    story.0.take_accounts();
    story.0.apply(&alloc(third, T2, A, S));
    assert_eq!(story.lost(LossReason::AccountsFull), 2);
}

#[test]
fn failed_realloc_is_taken_back_from_the_account_that_counted_it() {
    let mut story = story(PartKeys::THREAD);
    story.0.images.budget.accounts = Some(Box::new(AccountBudget::new(PartKeys::THREAD, 0)));
    let mut story = story.free_tentatively(T1, A);
    // From now on, there is room for an account of the thread.
    story.0.images.budget.accounts = Some(Box::new(AccountBudget::new(PartKeys::THREAD, 10)));
    let mut story = story.undo_free(T1, A);
    let frees: Vec<_> = story.take().accounts.iter().map(|account| account.counters.unmatched_frees).collect();
    assert_eq!(frees, [0]);
}

#[test]
fn merged_stacks_leave_their_accounts() {
    let settings = Settings {
        stacks: 2,
        parts: PartKeys::THREAD.union(PartKeys::ALLOCATOR),
        accounts: Some(PartKeys::THREAD),
        ..WIDE
    };
    let mut story = Story::with(settings);
    for number in 0..10 {
        let tid = Tid(200 + number);
        story = story.alloc_by(tid, A, 10 + u64::from(number), 1).free_by(T1, A);
    }
    let accounts = story.take().accounts;
    assert_eq!(accounts.len(), 10, "{accounts:#?}");
    for account in accounts {
        let size = 10 + u64::from(account.account.thread().unwrap().0 - 200);
        assert_eq!((account.counters.alloc, account.counters.free_by_others), (amount((size, 1)), amount((size, 1))));
    }
}
