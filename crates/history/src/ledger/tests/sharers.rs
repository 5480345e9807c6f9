//! Processes that share the memory of another process, as after vfork.

use memtrace_model::{ImageRusage, Rusage};

use super::*;

const CHILD: Pid = Pid(200);
const C1: Tid = Tid(200);

impl Story {
    fn vfork(self, parent: Pid, child: Pid) -> Self {
        self.event(parent, T1, 1, EventKind::Share { child, is_traced: true })
    }

    fn child(self, tick: u32, kind: EventKind) -> Self {
        self.event(CHILD, C1, tick, kind)
    }

    fn child_frees(self, address: u64) -> Self {
        self.child(2, EventKind::Free { address: AbsAddr(address), is_last: false })
    }

    fn entry(&self, class: EventClass, pid: Pid, ordinal: u32) -> Option<ImageUsage> {
        self.0.snapshot(class, NOW).images.get(&ImageId { pid, ordinal }).cloned()
    }
}

#[test]
fn blocks_of_a_sharer_belong_to_the_main_process() {
    let story = Story::new().alloc(A, 10, S).vfork(PID, CHILD).child_frees(A).alloc_in(CHILD.0, B, 20);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!((story.image(0).unmatched_frees, story.image(0).shares_memory_of), (0, None));
    let running = ImageUsage { shares_memory_of: Some(PID), ..ImageUsage::default() };
    assert_eq!(story.entry(EventClass::Heap, CHILD, 0), Some(running.clone()));
    assert_eq!(story.entry(EventClass::Map, CHILD, 0), None);
    let story = story.child(3, EventKind::Exit).free(B);
    assert_eq!(story.total(), usage((0, 0), (30, 2), (30, 2)));
    let ended = ImageUsage { ended: Some(ImageEnd::Exit), ..running };
    assert_eq!(story.entry(EventClass::Heap, CHILD, 0), Some(ended));
    assert_eq!(story.0.losses().total(), 0);
}

#[test]
fn a_child_that_calls_exec_at_once_is_not_listed() {
    let story = Story::new().alloc(A, 10, S).vfork(PID, CHILD).child(2, EventKind::Exec);
    let snapshot = story.0.snapshot(EventClass::Heap, NOW);
    assert_eq!(snapshot.images.keys().map(|id| id.pid).collect::<Vec<_>>(), [PID]);
    assert_eq!(snapshot.ends, BTreeMap::new());
    // After the exec, the process has memory of its own.
    let story = story.child_frees(A).alloc_in(CHILD.0, A, 5);
    let child = story.entry(EventClass::Heap, CHILD, 1).unwrap();
    assert_eq!((child.total, child.unmatched_frees, child.shares_memory_of), (usage((5, 1), (5, 1), (0, 0)), 1, None));
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
}

#[test]
fn memory_outlasts_the_process_that_had_it_first() {
    let id = |pid, ordinal| ImageId { pid, ordinal };
    let mut story = Story::new().stack(S).alloc(A, 10, S).alloc(B, 20, S).vfork(PID, CHILD).exit(5);
    assert!(story.0.keeps(id(PID, 0)) && story.0.take_ended().is_empty());
    // The mmap events report the end of the process too.
    story.0.end_if_running(id(PID, 0), ImageEnd::Exit, Tick(6));
    // The pid belongs to a new process, which has another block at the same address.
    let story = story.alloc(A, 7, R).child_frees(A);
    assert_eq!(story.image(1).total, usage((7, 1), (7, 1), (0, 0)));
    assert_eq!(story.image(0).total, usage((20, 1), (30, 2), (10, 1)));
    let mut story = story.child(9, EventKind::Exit);
    let ended = story.0.take_ended();
    let ends: Vec<_> = ended.iter().map(|image| (image.id, image.end, image.at)).collect();
    assert_eq!(ends, [(id(CHILD, 0), ImageEnd::Exit, Tick(9)), (id(PID, 0), ImageEnd::Exit, Tick(9))]);
    assert_eq!(ended[1].heap().unwrap().total.exit(), Amount::one(Bytes(20)));
    assert_eq!(ended[1].stacks.len(), 1);
    assert!(!story.0.keeps(id(PID, 0)));
    assert_eq!(story.0.live(), Amount::one(Bytes(7)));
}

#[test]
fn an_exec_of_the_main_process_leaves_its_memory_to_the_sharers() {
    let story = Story::new().alloc(A, 10, S).vfork(PID, CHILD).exec().alloc(A, 3, S).child_frees(A);
    assert_eq!(story.image(1).total, usage((3, 1), (3, 1), (0, 0)));
    assert_eq!(story.image(0).total, usage((0, 0), (10, 1), (10, 1)));
    let story = story.alloc_in(CHILD.0, B, 4).child(9, EventKind::Exit);
    assert_eq!(story.image(0).ended, Some(ImageEnd::Exec));
    assert_eq!(story.image(0).total.discarded(), Amount::one(Bytes(4)));
}

#[test]
fn a_child_of_a_sharer_shares_the_memory_of_the_main_process() {
    let grandchild = Pid(300);
    let story = Story::new().alloc(A, 10, S).vfork(PID, CHILD).vfork(CHILD, grandchild).child(3, EventKind::Exec);
    let story = story.event(grandchild, Tid(300), 4, EventKind::Free { address: AbsAddr(A), is_last: false });
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    let entry = story.entry(EventClass::Heap, grandchild, 0).unwrap();
    assert_eq!(entry.shares_memory_of, Some(PID));
    assert_eq!(story.entry(EventClass::Heap, CHILD, 0), None, "it had no events");
}

#[test]
fn a_fork_ends_the_share_of_an_earlier_process() {
    // The exit of the earlier process with the pid of the child was lost.
    let story = Story::new().alloc(A, 10, S).vfork(PID, CHILD).alloc_in(CHILD.0, B, 20).exit(5);
    assert!(story.0.keeps(ImageId { pid: PID, ordinal: 0 }));
    let story = story.event(Pid(300), Tid(300), 6, EventKind::Fork { child: CHILD }).alloc_in(CHILD.0, A, 5);
    let child = story.entry(EventClass::Heap, CHILD, 0).unwrap();
    assert_eq!((child.total, child.shares_memory_of), (usage((5, 1), (5, 1), (0, 0)), None));
    assert_eq!(story.image(0).total.exit(), Amount { bytes: Bytes(30), count: 2 });
    assert!(!story.0.keeps(ImageId { pid: PID, ordinal: 0 }));
}

#[test]
fn an_unshare_ends_the_share_of_an_earlier_process_with_the_pid() {
    // The record of the exit of the earlier process was lost.
    let story = Story::new().alloc(A, 10, S).vfork(PID, CHILD).alloc_in(CHILD.0, B, 20);
    let story = story.child(6, EventKind::Unshare).alloc_in(CHILD.0, A, 5);
    assert_eq!(story.total(), usage((30, 2), (30, 2), (0, 0)));
    assert_eq!(story.entry(EventClass::Heap, CHILD, 0).unwrap().total, usage((5, 1), (5, 1), (0, 0)));
}

#[test]
fn a_process_that_is_not_selected_is_not_listed() {
    let share = EventKind::Share { child: CHILD, is_traced: false };
    let mut story = Story::new().alloc(A, 10, S).event(PID, T1, 1, share).child_frees(A).child(3, EventKind::Unshare);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    assert_eq!((story.entry(EventClass::Heap, CHILD, 0), story.0.take_ended()), (None, Vec::new()));
    let settings = Settings { processes: 1, ..WIDE };
    let share = EventKind::Share { child: CHILD, is_traced: false };
    let story = Story::with(settings).alloc(A, 10, S).event(PID, T1, 1, share);
    assert_eq!(story.lost(LossReason::ProcessesFull), 1);
}

#[test]
fn the_rusage_of_a_sharer_is_its_own() {
    let counts = Some(Rusage::default());
    let touch = EventKind::Fault { page: AbsAddr(A), touch: Touch::default(), stack: S };
    let story = Story::new().vfork(PID, CHILD).child(2, touch);
    let story = story.child(3, EventKind::Rusage { counts, is_traced: true }).child(3, EventKind::Exit);
    let child = story.entry(EventClass::Fault, CHILD, 0).unwrap();
    assert_eq!((child.counts, child.total), (ImageRusage { begin: None, end: counts }, Quantities::ZERO));
    let main = story.entry(EventClass::Fault, PID, 0).unwrap();
    assert_eq!((main.counts, main.total.live().count), (ImageRusage::default(), 1));
}

#[test]
fn the_realloc_of_a_sharer_that_has_ended_does_not_fail() {
    let story = Story::new().alloc(A, 10, S).vfork(PID, CHILD);
    let begin = EventKind::TentativeFree { address: AbsAddr(A), is_last: false };
    let story = story.child(2, begin).child(3, EventKind::Exit).vfork(PID, CHILD);
    let story = story.child(4, EventKind::UndoFree { address: AbsAddr(A) });
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
}

#[test]
fn a_full_ledger_drops_blocks_in_kept_memory() {
    let room = Settings { blocks: 1000, ..WIDE };
    let fill = |story: Story, pid: u32, count: u64| {
        (0..count).fold(story, |story, nth| story.alloc_in(pid, nth << 4, if nth < 100 { 4096 } else { 16 }))
    };
    let mut story = fill(Story::with(room).vfork(PID, CHILD), CHILD.0, 990).exit(5);
    assert!(story.0.must_compare_shares());
    let demoted = story.0.compare_shares(Tick(7), |_| None);
    assert_eq!(demoted, [], "the pid of the image can belong to another process");
    assert_eq!((story.image(0).demotion.min_size, story.0.live().count), (Bytes(32), 100));
}
