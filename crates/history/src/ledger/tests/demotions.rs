//! Fair shares of a ledger that is nearly full.

use memtrace_model::Demotion;

use super::*;

/// Limits with a room of 954 blocks. Shares are compared from 900 live blocks on.
const LIMITED: Settings = Settings { blocks: 1000, ..WIDE };

/// Each user has a thousand pids.
const fn user_of(pid: Pid) -> Option<u32> {
    Some(pid.0 / 1000)
}

impl Story {
    /// Allocates `count` blocks. The blocks of one pid must have different numbers, from `first` on.
    fn fill(self, pid: u32, first: u64, count: u64, size: u64) -> Self {
        (first..first + count).fold(self, |story, nth| story.alloc_in(pid, nth << 4, size))
    }

    fn free_in(self, pid: u32, nth: u64) -> Self {
        self.event(Pid(pid), T1, 9, EventKind::Free { address: AbsAddr(nth << 4), is_last: false })
    }

    /// Compares the shares, and returns the demoted processes with the sizes of their smallest blocks.
    fn share(&mut self) -> Vec<(u32, u64)> {
        assert!(self.0.must_compare_shares());
        let demoted = self.0.compare_shares(Tick(7), user_of);
        demoted.iter().map(|demoted| (demoted.image.pid.0, demoted.min_size.0)).collect()
    }

    fn process(&self, pid: u32, ordinal: u32) -> ImageUsage {
        let snapshot = self.0.snapshot(EventClass::Heap, NOW);
        snapshot.images.get(&ImageId { pid: Pid(pid), ordinal }).cloned().unwrap_or_default()
    }

    fn demotion(&self, pid: u32) -> Demotion {
        self.process(pid, 0).demotion
    }
}

/// Demotion of an image by another ledger.
const fn demoted(pid: u32, ordinal: u32, min_size: u64) -> Demoted {
    Demoted { image: ImageId { pid: Pid(pid), ordinal }, min_size: Bytes(min_size), at: Tick(7) }
}

fn demotion(min_size: u64, dropped: (u64, u64), frees: u64) -> Demotion {
    let dropped = Amount { bytes: Bytes(dropped.0), count: dropped.1 };
    Demotion { at: Tick(7), min_size: Bytes(min_size), dropped, frees }
}

/// 100 large and 700 small blocks of one user, and 100 blocks of another user.
fn two_users() -> Story {
    fill_two_users(Story::with(LIMITED))
}

fn fill_two_users(story: Story) -> Story {
    story.fill(1001, 0, 100, 4096).fill(1001, 100, 700, 16).fill(2001, 0, 100, 16)
}

#[test]
fn shares_are_compared_only_in_a_ledger_that_is_nearly_full() {
    let story = Story::with(LIMITED).fill(1001, 0, 899, 16);
    assert!(!story.0.must_compare_shares());
    assert!(story.fill(2001, 0, 1, 16).0.must_compare_shares());
}

#[test]
fn small_blocks_of_the_largest_user_are_dropped() {
    let mut story = two_users();
    assert_eq!(story.share(), [(1001, 32)]);
    let process = story.process(1001, 0);
    assert_eq!(process.demotion, demotion(32, (700 * 16, 700), 0));
    assert_eq!(process.total.live(), Amount { bytes: Bytes(100 * 4096), count: 100 });
    assert_eq!(process.total.alloc(), Amount { bytes: Bytes(100 * 4096 + 700 * 16), count: 800 });
    assert_eq!(story.process(2001, 0).demotion, Demotion::default());
    assert_eq!(story.process(2001, 0).total.live().count, 100);
    assert_eq!((story.0.live().count, story.0.losses().total()), (200, 0));
}

#[test]
fn a_demoted_process_has_exact_totals_of_allocations() {
    let mut story = two_users();
    story.share();
    let story = story.fill(1001, 900, 5, 31).fill(1001, 910, 1, 32);
    // A dropped block, a new dropped block and a block that is followed.
    let story = story.free_in(1001, 100).free_in(1001, 900).free_in(1001, 910);
    let process = story.process(1001, 0);
    assert_eq!(process.demotion, demotion(32, (700 * 16 + 5 * 31, 705), 2));
    assert_eq!((process.unmatched_frees, process.total.live().count), (0, 100));
    assert_eq!(process.total.alloc().count, 806);
    // An unknown block of another process is not a dropped one.
    assert_eq!(story.free_in(2001, 999).process(2001, 0).unmatched_frees, 1);
}

#[test]
fn users_with_equal_shares_are_not_demoted() {
    let mut story = Story::with(LIMITED).fill(1001, 0, 460, 16).fill(2001, 0, 460, 16);
    assert_eq!(story.share(), []);
    // The next comparison is due when a user can exceed its share.
    assert!(!story.0.must_compare_shares());
    let mut story = story.fill(1001, 500, 20, 16);
    assert_eq!(story.share(), [(1001, 32)]);
    assert_eq!(story.process(2001, 0).total.live().count, 460);
}

#[test]
fn a_user_with_many_processes_has_one_share() {
    let small = |story, pid| Story::fill(story, pid, 0, 80, 16);
    let mut story = (1001..=1010).fold(Story::with(LIMITED), small).fill(1001, 100, 1, 64).fill(2001, 0, 100, 16);
    let demoted = story.share();
    // 801 blocks against a share of 477: five processes lose 80 small blocks each.
    assert_eq!(demoted.len(), 5);
    assert!(demoted.iter().all(|&(pid, size)| pid < 2000 && size == 32), "{demoted:?}");
    assert!(demoted.contains(&(1001, 32)), "the process with the most blocks comes first");
    assert_eq!(story.process(2001, 0).total.live().count, 100);
    assert_eq!(story.process(1001, 0).total.live(), Amount::one(Bytes(64)));
}

#[test]
fn processes_without_a_known_user_share_the_room_of_one() {
    let mut story = Story::with(LIMITED).fill(1, 0, 450, 16).fill(2, 0, 350, 16).fill(3, 0, 100, 16);
    let known = |pid: Pid| (pid == Pid(3)).then_some(0);
    let demoted = story.0.compare_shares(Tick(7), known);
    assert_eq!(demoted.iter().map(|demoted| demoted.image.pid).collect::<Vec<_>>(), [Pid(1)]);
}

#[test]
fn a_demoted_process_is_demoted_further_if_it_fills_the_ledger_again() {
    let mut story = two_users();
    story.share();
    let mut story = story.fill(1001, 1000, 700, 100);
    assert_eq!(story.share(), [(1001, 128)]);
    assert_eq!(story.demotion(1001), demotion(128, (700 * 16 + 700 * 100, 1400), 0));
    assert_eq!(story.process(1001, 0).total.live().count, 100);
}

#[test]
fn a_process_stays_demoted_until_it_exits() {
    let mut story = two_users();
    story.share();
    let story = story.event(Pid(1001), T1, 8, EventKind::Exec).fill(1001, 0, 3, 16).fill(1001, 10, 1, 32);
    let second = story.process(1001, 1);
    assert_eq!((second.demotion, second.total.live().count), (demotion(32, (48, 3), 0), 1));
    let story = story.event(Pid(1001), T1, 8, EventKind::Exit).fill(1001, 0, 3, 16);
    let third = story.process(1001, 2);
    assert_eq!((third.demotion, third.total.live().count), (Demotion::default(), 3));
}

#[test]
fn sums_of_the_bpf_programs_are_counted_once() {
    let mut story = two_users();
    story.share();
    let sum = |bytes, count| Amount { bytes: Bytes(bytes), count };
    for sum in [sum(160, 10), sum(320, 20), sum(160, 10)] {
        story.0.set_dropped(demoted(1001, 0, 32), sum);
    }
    let record = EventKind::Dropped { min_size: Bytes(32), sum: sum(336, 21) };
    let story = story.event(Pid(1001), T1, 8, record);
    let process = story.process(1001, 0);
    assert_eq!(process.demotion, demotion(32, (700 * 16 + 336, 721), 0));
    assert_eq!(process.total.alloc().count, 821);
    let other = process.by_stack[&StackId::OTHER.into()];
    assert_eq!((other.alloc(), other.live()), (sum(336, 21), Amount::default()));
}

#[test]
fn a_sum_marks_a_process_that_the_ledger_has_not_demoted() {
    let sum = Amount { bytes: Bytes(48), count: 3 };
    let record = || EventKind::Dropped { min_size: Bytes(32), sum };
    let story = Story::with(LIMITED).fill(1001, 0, 2, 16).event(Pid(1001), T1, 7, record());
    assert_eq!(story.demotion(1001), demotion(32, (48 + 32, 5), 0));
    // A process that has exited is ignored.
    let mut story = story.event(Pid(1001), T1, 8, EventKind::Exit);
    story.0.set_dropped(demoted(1001, 0, 32), sum);
    assert!(story.process(1001, 1) == ImageUsage::default());
}

#[test]
fn a_demotion_by_another_ledger_drops_the_same_blocks() {
    let mut story = Story::with(LIMITED).fill(1001, 0, 4, 16).fill(1001, 10, 2, 64);
    for _ in 0..2 {
        story.0.demote(demoted(1001, 0, 64));
        assert_eq!(story.demotion(1001), demotion(64, (64, 4), 0));
    }
    // The first events of a process can arrive later than its demotion, but not its end.
    story.0.demote(demoted(5, 0, 64));
    let mut story = story.fill(5, 0, 1, 16).event(Pid(6), T1, 8, EventKind::Exit);
    assert_eq!(story.process(5, 0).demotion, demotion(64, (16, 1), 0));
    story.0.demote(demoted(6, 0, 64));
    assert_eq!(story.fill(6, 0, 1, 16).process(6, 1).total.live().count, 1);
}

#[test]
fn a_sum_between_exec_and_the_next_event_counts() {
    let mut story = two_users();
    story.share();
    let mut story = story.event(Pid(1001), T1, 8, EventKind::Exec);
    story.0.set_dropped(demoted(1001, 0, 32), Amount { bytes: Bytes(48), count: 3 });
    assert_eq!(story.process(1001, 1).demotion, demotion(32, (48, 3), 0));
}

#[test]
fn sums_count_for_memory_that_outlasts_its_process() {
    let sharer = Pid(1500);
    let share = EventKind::Share { child: sharer, is_traced: true };
    let mut story = two_users().event(Pid(1001), T1, 7, share);
    story.share();
    let sum = |bytes, count| Amount { bytes: Bytes(bytes), count };
    story.0.set_dropped(demoted(1001, 0, 32), sum(160, 10));
    let mut story = story.event(Pid(1001), T1, 8, EventKind::Exit);
    story.0.set_dropped(demoted(1001, 0, 32), sum(320, 20));
    // The sharer is about to leave.
    let record = |bytes, count| EventKind::Dropped { min_size: Bytes(32), sum: sum(bytes, count) };
    let story = story.event(Pid(1001), T1, 9, record(336, 21));
    let expected = demotion(32, (700 * 16 + 336, 721), 0);
    assert_eq!(story.demotion(1001), expected);
    // Another process gets the pid, and is demoted.
    let story = story.fill(1001, 0, 1, 64).event(Pid(1001), T1, 7, record(16, 1));
    assert_eq!((story.process(1001, 1).demotion, story.demotion(1001)), (demotion(32, (16, 1), 0), expected));
    let mut story = story.event(sharer, T1, 10, EventKind::Exit);
    story.0.set_dropped(demoted(1001, 0, 32), sum(999, 99));
    assert_eq!(story.demotion(1001), expected);
}

#[test]
fn a_failed_realloc_of_a_dropped_block_takes_its_free_back() {
    let mut story = two_users();
    story.share();
    let begin = EventKind::TentativeFree { address: AbsAddr(100 << 4), is_last: false };
    let story = story.event(Pid(1001), T2, 8, begin);
    assert_eq!(story.demotion(1001).frees, 1);
    let story = story.event(Pid(1001), T2, 8, EventKind::UndoFree { address: AbsAddr(100 << 4) });
    assert_eq!((story.demotion(1001).frees, story.process(1001, 0).unmatched_frees), (0, 0));
}

#[test]
fn deltas_add_up_to_the_demotion() {
    let mut story = fill_two_users(Story(Ledger::new(LIMITED).with_deltas()));
    let mut sum = story.0.take_delta(Tick(5));
    story.share();
    sum.merge(story.0.take_delta(Tick(8)));
    let story = story.fill(1001, 3000, 4, 16);
    let mut story = story.free_in(1001, 3000);
    sum.merge(story.0.take_delta(Tick(9)));
    // Nothing has changed.
    sum.merge(story.0.take_delta(Tick(10)));
    let id = ImageId { pid: Pid(1001), ordinal: 0 };
    let change = &sum.usage[&EventClass::Heap][&id];
    assert_eq!(change.demotion, story.demotion(1001));
    let mut story = story.event(Pid(1001), T1, 11, EventKind::Exit);
    sum.merge(story.0.take_delta(Tick(12)));
    let ended = story.0.take_ended();
    assert_eq!(sum.usage[&EventClass::Heap][&id].demotion, ended[0].heap().unwrap().demotion);
}
