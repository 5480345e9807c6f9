//! Stalls and OOM kills.

use memtrace_model::{CgroupId, Nanoseconds, Order, ReclaimKind, Stall, StallKey, StallStats, StallTotals};

use super::*;

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

fn usage_of_stalls(story: &Story) -> ImageUsage {
    story.0.snapshot(EventClass::Reclaim, NOW).images[&ImageId { pid: PID, ordinal: 0 }].clone()
}

#[test]
fn stalls_are_totalled_by_stack_and_by_kind() {
    let all =
        [stall(ReclaimKind::Memcg, 5000, S), stall(ReclaimKind::Memcg, 9000, R), stall(ReclaimKind::Direct, 2000, S)];
    let story = Story::new().alloc(A, 10, S);
    let story = all.iter().fold(story, |story, stall| story.event(PID, T1, 0, EventKind::Stall(Box::new(*stall))));
    let image = usage_of_stalls(&story);
    let stalls = |count, time| Quantities::ZERO.with_stalls(StallTotals { count, time: Nanoseconds(time) });
    assert_eq!(image.total, stalls(3, 16_000));
    assert_eq!(image.by_stack[&S.into()], stalls(2, 7000));
    assert_eq!(image.by_stack[&R.into()], stalls(1, 9000));
    let mut memcg = StallStats::default();
    all[..2].iter().for_each(|stall| memcg.add(stall));
    assert_eq!(image.stalls[&StallKey { group: None, work: ReclaimKind::Memcg }], memcg);
    assert_eq!((memcg.longest, memcg.scanned, memcg.reclaimed), (Nanoseconds(9000), 64, 60));
    // Block totals are separate.
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
}

#[test]
fn stalls_are_totalled_by_memcg() {
    let [inner, outer] = [CgroupId::of(7), CgroupId::of(9)];
    let stall_in = |group, duration| Stall { group, ..stall(ReclaimKind::Memcg, duration, S) };
    let all = [stall_in(inner, 5000), stall_in(outer, 9000), stall_in(inner, 2000)];
    let story = Story::new();
    let story = all.iter().fold(story, |story, stall| story.event(PID, T1, 0, EventKind::Stall(Box::new(*stall))));
    let times: Vec<_> =
        usage_of_stalls(&story).stalls.iter().map(|(key, stats)| (key.group, stats.stalls.time)).collect();
    assert_eq!(times, [(inner, Nanoseconds(7000)), (outer, Nanoseconds(9000))]);
}

#[test]
fn an_oom_kill_ends_the_image_in_all_classes() {
    let kill = || {
        let (comm, by_comm) = (String::from("victim"), String::from("eater"));
        EventKind::OomKill(Box::new(OutOfMemory { comm, by: Pid(7), by_comm, group: None, full: None }))
    };
    let stalled = EventKind::Stall(Box::new(stall(ReclaimKind::Memcg, 5000, S)));
    let story = Story::new().alloc(A, 10, S).event(PID, T1, 0, stalled).event(PID, T1, 5, kill()).exit(6);
    assert_eq!((story.image(0).ended, story.total().exit().bytes), (Some(ImageEnd::OomKill), Bytes(10)));
    assert_eq!(
        (usage_of_stalls(&story).ended, usage_of_stalls(&story).total.stalls().count),
        (Some(ImageEnd::OomKill), 1)
    );
    let kills = story.0.snapshot(EventClass::Heap, NOW).oom_kills;
    let killed: Vec<_> = kills.iter().map(|kill| (kill.at, kill.victim.pid, kill.comm.as_str(), kill.by)).collect();
    assert_eq!(killed, [(Tick(5), PID, "victim", Pid(7))]);
    // The next process with this pid exits normally.
    let story = story.alloc(A, 10, S).exit(9);
    assert_eq!(story.image(1).ended, Some(ImageEnd::Exit));
}

#[test]
fn threads_of_an_oom_victim_are_one_kill() {
    let kill = |by_comm: &str| {
        let (comm, by_comm) = (String::from("victim"), String::from(by_comm));
        EventKind::OomKill(Box::new(OutOfMemory { comm, by: PID, by_comm, group: None, full: None }))
    };
    let minute = Tick::at(SAME_KILL).0;
    let mut story = Story(Ledger::new(WIDE).with_deltas()).alloc(A, 10, S);
    for (tid, tick, by_comm) in [(T1, 5, "main"), (T2, 5, "worker"), (T2, 9, "worker")] {
        story = story.event(PID, tid, tick, kill(by_comm));
    }
    let kills = |kills: &BTreeSet<OomKill>| -> Vec<_> {
        kills.iter().map(|kill| (kill.at.0, kill.victim.pid, kill.victim.ordinal, kill.by_comm.clone())).collect()
    };
    let first = (5, PID, 0, String::from("main"));
    assert_eq!(kills(&story.0.snapshot(EventClass::Heap, NOW).oom_kills), std::slice::from_ref(&first));
    assert_eq!(kills(&story.0.take_delta(Tick(9)).oom_kills), std::slice::from_ref(&first));
    // The next process with this pid, and an untraced process with a pid that is used again, are other victims.
    let other = Pid(77);
    let story = story.exit(10).event(PID, T1, 11, kill("next"));
    let story = story.event(other, T1, 12, kill("old")).event(other, T1, 13 + minute, kill("new"));
    assert_eq!(
        kills(&story.0.snapshot(EventClass::Heap, NOW).oom_kills),
        [
            first,
            (11, PID, 1, String::from("next")),
            (12, other, 0, String::from("old")),
            (13 + minute, other, 0, String::from("new")),
        ]
    );
}

/// The sizes of stacks are shares of the bytes of all blocks, or of the time of all stalls.
#[test]
fn a_small_stack_of_blocks_is_merged_before_a_short_stall() {
    let [t, u] = [StackId(90), StackId(91)];
    let story = Story::with(Settings { stacks: 4, ..WIDE }).alloc(A, 10, S).free(A).alloc(A, 1 << 30, R).free(A);
    let stalled = EventKind::Stall(Box::new(stall(ReclaimKind::Memcg, 5, t)));
    let story = story.event(PID, T1, 0, stalled).alloc(A, 1, u).alloc(B, 1, u);
    assert_eq!(usage_of_stalls(&story).by_stack.keys().map(|key| key.stack).collect::<Vec<_>>(), [t]);
    assert_eq!(story.image(0).by_stack.keys().map(|key| key.stack).collect::<Vec<_>>(), [StackId::OTHER, R, u]);
}
