//! The books of waits for memory, and of who is killed for want of it.

use super::*;
use crate::model::{CgroupId, Nanoseconds, Order, ReclaimKind, Stall, StallKey, StallStats, StallTotals};

fn stall(work: ReclaimKind, duration: u64, stack: StackId) -> Stall {
    Stall {
        work,
        order: Order::of(0),
        group: None,
        stack,
        duration: Nanoseconds(duration),
        throttled: Nanoseconds(1),
        scanned: 32,
        reclaimed: 30,
    }
}

fn waits(story: &Story) -> ImageUsage {
    story.0.snapshot(EventClass::Reclaim, NOW).images[&ImageId { pid: PID, ordinal: 0 }].clone()
}

#[test]
fn waits_are_booked_by_their_stack_and_by_what_was_done_meanwhile() {
    let all =
        [stall(ReclaimKind::Memcg, 5000, S), stall(ReclaimKind::Memcg, 9000, R), stall(ReclaimKind::Direct, 2000, S)];
    let story = Story::new().alloc(A, 10, S);
    let story = all.iter().fold(story, |story, stall| story.event(PID, T1, 0, EventKind::Stall(Box::new(*stall))));
    let image = waits(&story);
    let stalls = |count, time| Usage { stalls: StallTotals { count, time: Nanoseconds(time) }, ..Usage::default() };
    assert_eq!(image.total, stalls(3, 16_000));
    assert_eq!(image.by_stack[&S.into()].usage, stalls(2, 7000));
    assert_eq!(image.by_stack[&R.into()].usage, stalls(1, 9000));
    let mut memcg = StallStats::default();
    all[..2].iter().for_each(|stall| memcg.add(stall));
    assert_eq!(image.stalls[&StallKey { group: None, work: ReclaimKind::Memcg }], memcg);
    assert_eq!((memcg.longest, memcg.scanned, memcg.reclaimed), (Nanoseconds(9000), 64, 60));
    // The books of blocks are apart.
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
}

#[test]
fn waits_for_one_control_group_are_kept_apart_from_those_for_another() {
    let [inner, outer] = [CgroupId::of(7), CgroupId::of(9)];
    let of = |group, duration| Stall { group, ..stall(ReclaimKind::Memcg, duration, S) };
    let all = [of(inner, 5000), of(outer, 9000), of(inner, 2000)];
    let story = Story::new();
    let story = all.iter().fold(story, |story, stall| story.event(PID, T1, 0, EventKind::Stall(Box::new(*stall))));
    let times: Vec<_> = waits(&story).stalls.iter().map(|(key, book)| (key.group, book.stalls.time)).collect();
    assert_eq!(times, [(inner, Nanoseconds(7000)), (outer, Nanoseconds(9000))]);
}

#[test]
fn the_books_of_who_is_killed_for_want_of_memory_are_kept_and_say_so() {
    let kill = || {
        let (comm, by_comm) = (String::from("victim"), String::from("eater"));
        EventKind::OomKill(Box::new(OutOfMemory { comm, by: Pid(7), by_comm, group: None, full: None }))
    };
    let stalled = EventKind::Stall(Box::new(stall(ReclaimKind::Memcg, 5000, S)));
    let story = Story::new().alloc(A, 10, S).event(PID, T1, 0, stalled).event(PID, T1, 5, kill()).exit(6);
    assert_eq!((story.image(0).ended, story.total().live.bytes), (Some(ImageEnd::OomKill), Bytes(10)));
    assert_eq!((waits(&story).ended, waits(&story).total.stalls.count), (Some(ImageEnd::OomKill), 1));
    let kills = story.0.snapshot(EventClass::Heap, NOW).oom_kills;
    let killed: Vec<_> = kills.iter().map(|kill| (kill.at, kill.victim.pid, kill.comm.as_str(), kill.by)).collect();
    assert_eq!(killed, [(Tick(5), PID, "victim", Pid(7))]);
    // Whoever comes to have the number after it ends by itself.
    let story = story.alloc(A, 10, S).exit(9);
    assert_eq!(story.image(1).ended, Some(ImageEnd::Exit));
}
