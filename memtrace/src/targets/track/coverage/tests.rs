use memtrace_model::{Amount, Bytes, Pid, Quantity};

use super::*;

const FIRST: ImageId = ImageId { pid: Pid(7), ordinal: 0 };
const SECOND: ImageId = ImageId { pid: Pid(9), ordinal: 2 };

fn process(id: ImageId, reason: UntracedReason, rss: u64) -> (ImageId, UntracedProcess) {
    (id, UntracedProcess { pid: id.pid, comm: "it".into(), exe: None, reason, rss: Some(Bytes(rss)) })
}

fn snapshots(classes: &[EventClass], with_events: &[ImageId]) -> Snapshots {
    let image = |id: &ImageId| {
        let alloc = Amount { bytes: Bytes(8), count: 1 };
        (*id, ImageUsage { total: Quantities::ZERO.with_amount(Quantity::AllocBytes, alloc), ..ImageUsage::default() })
    };
    let snapshot = || Snapshot { images: with_events.iter().map(image).collect(), ..Snapshot::default() };
    Snapshots(classes.iter().map(|&class| (class, snapshot())).collect())
}

#[test]
fn recorded_event_proves_that_a_process_is_traced() {
    let without = vec![process(FIRST, UntracedReason::Ended, 1), process(SECOND, UntracedReason::Go, 2)];
    let coverage = Coverage { without, ..Coverage::default() };
    let untraced = coverage.untraced(EventClass::Heap, &snapshots(&[EventClass::Heap], &[FIRST]));
    assert_eq!(untraced.listed().iter().map(|process| process.pid).collect::<Vec<_>>(), [SECOND.pid]);
    assert_eq!(coverage.untraced(EventClass::Heap, &Snapshots::default()).total().processes, 2);
    assert_eq!(coverage.untraced(EventClass::Fault, &Snapshots::default()).total().processes, 0);
}

#[test]
fn largest_process_is_returned_only_if_nothing_is_traced() {
    let without = || vec![process(FIRST, UntracedReason::Stripped, 1), process(SECOND, UntracedReason::Go, 2)];
    let largest = |has_probed, classes: &[EventClass], with_events: &[ImageId]| {
        let coverage = Coverage { has_probed, without: without(), ..Coverage::default() };
        coverage.largest_if_none_is_traced(&snapshots(classes, with_events)).map(|process| process.pid)
    };
    assert_eq!(largest(false, &[EventClass::Heap], &[]), Some(SECOND.pid));
    assert_eq!(largest(true, &[EventClass::Heap], &[]), None);
    assert_eq!(largest(false, &[EventClass::Heap], &[FIRST]), None);
    assert_eq!(largest(false, &[EventClass::Heap, EventClass::Fault], &[]), None, "traced for page faults");
    assert_eq!(Coverage::default().largest_if_none_is_traced(&snapshots(&[EventClass::Heap], &[])), None);
}
