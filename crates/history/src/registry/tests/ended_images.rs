//! Removal of ended images.

use super::*;

fn exited(pid: u32) -> ProcessEvent {
    event(pid, ProcessEventKind::Exited { at: Tick(3) })
}

#[test]
fn only_an_ended_image_can_be_taken() {
    let mut registry = registry_of([mapped(7, 0x1000, 0x2000, 0, "/first")]);
    assert_eq!(registry.take(id(7, 0)), None, "it runs");
    assert_eq!(registry.take(id(8, 0)), None, "it is unknown");
    registry.apply(exited(7));
    let taken = registry.take(id(7, 0)).unwrap();
    assert_eq!(taken.mappings, [mapping(0x1000, 0x2000, 0, "/first")]);
    assert_eq!(taken.ended, Some((ImageEnd::Exit, Tick(3))));
    assert_eq!(registry.take(id(7, 0)), None, "it was taken before");
}

#[test]
fn ordinals_continue_after_the_images_are_taken() {
    let mut registry = registry_of([mapped(7, 0x1000, 0x2000, 0, "/first"), exited(7)]);
    registry.take(id(7, 0)).unwrap();
    registry.apply(mapped(7, 0x1000, 0x2000, 0, "/second"));
    registry.apply(event(7, ProcessEventKind::Exec { comm: String::from("third"), at: Tick(5) }));
    assert_eq!(registry.images().keys().copied().collect::<Vec<_>>(), [id(7, 1), id(7, 2)]);
    assert!(registry.is_latest(id(7, 2)) && !registry.is_latest(id(7, 1)));
}

#[test]
fn the_exit_of_an_unknown_process_counts() {
    let registry = registry_of([exited(7), mapped(7, 0x1000, 0x2000, 0, "/second")]);
    assert_eq!(registry.images().keys().copied().collect::<Vec<_>>(), [id(7, 1)]);
}

#[test]
fn processes_over_time_do_not_reach_the_limits_if_they_are_taken() {
    let mut registry = Registry::new(Limits { images: 3, mappings: 6, ..Limits::default() });
    let thread = |pid| event(pid, ProcessEventKind::Thread { tid: Tid(pid + 1), name: String::from("worker") });
    registry.apply(mapped(1, 0x1000, 0x2000, 0, "/shell"));
    for run in 0..1000 {
        let pid = 100 + run % 7;
        let ordinal = run / 7 * 2;
        registry.apply(event(pid, ProcessEventKind::Forked { parent: Pid(1), at: Tick(run) }));
        registry.apply(event(pid, ProcessEventKind::Exec { comm: String::from("ls"), at: Tick(run) }));
        registry.apply(mapped(pid, 0x1000, 0x3000, 0, "/ls"));
        registry.apply(mapped(pid, 0x2000, 0x3000, 0, "/libc"));
        registry.apply(thread(pid));
        registry.apply(exited(pid));
        assert!(registry.take(id(pid, ordinal)).is_some() && registry.take(id(pid, ordinal + 1)).is_some());
    }
    assert_eq!(registry.losses().total(), 0);
    assert_eq!((registry.images().len(), registry.mappings, registry.thread_names), (1, 1, 0));
}

#[test]
fn an_image_that_is_lost_keeps_the_number_of_the_next() {
    let mut registry = Registry::new(Limits { images: 1, mappings: 100, ..Limits::default() });
    registry.apply(mapped(1, 0x1000, 0x2000, 0, "/only"));
    // There is no room for the image, and its exit is reported.
    registry.apply(mapped(7, 0x1000, 0x2000, 0, "/lost"));
    registry.apply(exited(7));
    registry.apply(exited(1));
    registry.take(id(1, 0)).unwrap();
    registry.apply(mapped(7, 0x1000, 0x2000, 0, "/next"));
    assert_eq!(registry.images().keys().copied().collect::<Vec<_>>(), [id(7, 1)]);
}
