//! Images whose page faults are left out, because their allocations are sampled.

use memtrace_model::Delta;

use super::*;

const IMAGE: ImageId = ImageId { pid: PID, ordinal: 0 };
const OTHER: Pid = Pid(200);

impl Story {
    fn touch(self, pid: Pid, page: u64) -> Self {
        let touch = Touch { write: true, ..Touch::default() };
        self.event(pid, T1, 0, EventKind::Fault { page: AbsAddr(page), touch, stack: S })
    }

    fn leave_out_pages(mut self, image: ImageId) -> Self {
        self.0.leave_out_pages(image);
        self
    }

    /// Returns the images in the report of page faults, with their numbers of touched pages.
    fn touched_pages(&self) -> Vec<(Pid, u32, u64)> {
        let snapshot = self.0.snapshot(EventClass::Fault, NOW);
        snapshot.images.iter().map(|(id, usage)| (id.pid, id.ordinal, usage.total.alloc().count)).collect()
    }
}

#[test]
fn left_out_image_has_no_pages_until_its_exec() {
    let story = Story::new().touch(PID, A).touch(PID, B).touch(OTHER, A).alloc(A, 10, S);
    assert_eq!(story.touched_pages(), [(PID, 0, 2), (OTHER, 0, 1)]);
    let story =
        story.leave_out_pages(IMAGE).touch(PID, B).event(PID, T1, 0, EventKind::MajorFault { page: AbsAddr(B) });
    assert_eq!(story.touched_pages(), [(OTHER, 0, 1)]);
    assert_eq!((story.total(), story.0.images.budget.pages), (usage((10, 1), (10, 1), (0, 0)), 1));
    assert_eq!(story.0.losses().total(), 0);
    // BPF sends the rusage of each traced process before its end.
    let rusage = EventKind::Rusage { counts: None, is_traced: true };
    let mut story = story.event(PID, T1, 0, rusage).exec().touch(PID, A);
    let classes: Vec<_> =
        story.0.take_ended().iter().flat_map(|image| image.usage.iter().map(|(class, _)| *class)).collect();
    assert_eq!(classes, [EventClass::Heap]);
    assert_eq!(story.touched_pages(), [(PID, 1, 1), (OTHER, 0, 1)]);
}

#[test]
fn image_without_events_can_be_left_out() {
    let story = Story::new().leave_out_pages(IMAGE).touch(PID, A);
    assert!(story.touched_pages().is_empty());
    // The command names an image that has ended, so it does not apply to the next image.
    let story = story.exec().leave_out_pages(IMAGE).touch(PID, A);
    assert_eq!(story.touched_pages(), [(PID, 1, 1)]);
}

#[test]
fn child_that_is_left_out_before_its_fork_inherits_no_pages() {
    let fork = EventKind::Fork { child: OTHER };
    let story = Story::new().touch(PID, A).touch(PID, B).event(PID, T1, 0, fork.clone());
    assert_eq!((story.touched_pages().len(), story.0.images.budget.pages), (2, 4));
    let child = ImageId { pid: OTHER, ordinal: 0 };
    let story = Story::new().touch(PID, A).touch(PID, B).leave_out_pages(child).event(PID, T1, 0, fork);
    assert_eq!((story.touched_pages(), story.0.images.budget.pages), (vec![(PID, 0, 2)], 2));
}

#[test]
fn process_that_shares_left_out_memory_is_not_listed() {
    let classes = |leaves_out: bool| {
        let mut story = Story::new().touch(PID, A);
        if leaves_out {
            story = story.leave_out_pages(IMAGE);
        }
        let rusage = EventKind::Rusage { counts: None, is_traced: true };
        let mut story = story
            .event(PID, T1, 0, EventKind::Share { child: OTHER, is_traced: true })
            .event(OTHER, Tid(OTHER.0), 0, rusage)
            .event(OTHER, Tid(OTHER.0), 0, EventKind::Exit);
        let ended = story.0.take_ended();
        ended.iter().flat_map(|image| image.usage.iter().map(|(class, _)| *class)).collect::<Vec<_>>()
    };
    assert_eq!([false, true].map(classes), [vec![EventClass::Fault], vec![]]);
}

#[test]
fn deltas_take_left_out_pages_back() {
    let mut story = Story(Ledger::new(WIDE).with_deltas()).touch(PID, A).touch(PID, B);
    let mut sum: Delta = story.0.take_delta(Tick(10));
    assert_eq!(sum.usage[&EventClass::Fault][&IMAGE].total.alloc().count, 2);
    let mut story = story.touch(PID, B + 0x1000).leave_out_pages(IMAGE).touch(PID, A);
    sum.merge(story.0.take_delta(Tick(20)));
    let left = sum.usage.get(&EventClass::Fault).and_then(|images| images.get(&IMAGE));
    assert!(left.is_none_or(|usage| usage.total.is_zero() && usage.by_stack.values().all(Quantities::is_zero)));
}
