//! A hand-written profile of a build: a running process, an ended one, groups of ended processes, and merged stacks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    Amount, BlockHistograms, Bytes, Cgroup, Demotion, EndedGroup, EndedRun, Frame, FrameId, ImageEnd, LiveChanges,
    Name, Part, Pid, ProcessProfile, Profile, Quantities, Quantity, RunFacts, StackEnd, StackProfile, Tick, User,
};

/// Returns a profile with two processes and two groups, of 1,650 process images in all.
pub(crate) fn build() -> Profile {
    let ann = || Some(User { uid: 1000, name: Some(String::from("ann")) });
    let cgroup = || {
        let unit = Some(String::from("build.service"));
        Some(Arc::new(Cgroup { path: String::from("/system.slice/build.service"), unit, ..Cgroup::default() }))
    };
    let make = ProcessProfile { user: ann(), traced: seconds(60), ..ProcessProfile::new(Pid(300), "make") };
    let linker = ProcessProfile {
        ended: Some(ImageEnd::Exit),
        ended_after: Some(seconds(59)),
        user: ann(),
        cgroup: cgroup(),
        traced: seconds(3),
        ..ProcessProfile::new(Pid(4711), "ld")
    };
    let largest = EndedRun {
        pid: Pid(4000),
        start: Duration::from_millis(1_500),
        end: seconds(4),
        ended: ImageEnd::Exit,
        total: exit(0, 700, 7),
    };
    let compilers = EndedGroup {
        runs: 412,
        ends: BTreeMap::from([(ImageEnd::Exit, 411), (ImageEnd::OomKill, 1)]),
        first_start: Duration::ZERO,
        last_end: seconds(58),
        largest: vec![largest],
    };
    let drivers = EndedGroup {
        runs: 1236,
        ends: BTreeMap::from([(ImageEnd::Exec, 1236)]),
        first_start: seconds(1),
        last_end: seconds(57),
        largest: Vec::new(),
    };
    let group = |comm: &str, ended, group: EndedGroup| ProcessProfile {
        ended: Some(ended),
        ended_after: Some(group.last_end),
        user: ann(),
        cgroup: cgroup(),
        traced: seconds(800),
        group: Some(group),
        ..ProcessProfile::new(Pid(0), comm)
    };
    let mut profile = Profile {
        run: RunFacts { duration: seconds(60), ..RunFacts::default() },
        processes: vec![
            group("a-compiler-name", ImageEnd::Exit, compilers),
            group("sh", ImageEnd::Exec, drivers),
            make,
            linker,
        ],
        frames: ["main", "parse", "fold"].map(frame).into(),
        ..Profile::default()
    };
    let live = Amount { bytes: Bytes(8192), count: 2 };
    let freed = Quantities::ZERO.with_amount(Quantity::AllocBytes, live).with_free(live);
    let discarded = Amount { bytes: Bytes(98_304), count: 24 };
    add(&mut profile, 0, &[0, 1], 0, exit(1 << 20, 3 << 20, 300));
    add(&mut profile, 0, &[0, 2], 0, exit(4096, 1 << 20, 100));
    add(&mut profile, 0, &[], 12_345, exit(0, 2 << 20, 50_000));
    let discarded =
        Quantities::ZERO.with_amount(Quantity::AllocBytes, discarded).with_amount(Quantity::DiscardedBytes, discarded);
    add(&mut profile, 1, &[0], 0, discarded);
    add(
        &mut profile,
        2,
        &[0, 1],
        0,
        Quantities::ZERO.with_amount(Quantity::LiveBytes, live).with_amount(Quantity::AllocBytes, live),
    );
    add(&mut profile, 2, &[0, 2], 0, freed);
    add(&mut profile, 3, &[0, 1], 0, exit(512, 512, 1));
    profile
}

/// Returns the profile of [`build`] with two demotions: of a group, and of a running process.
pub(crate) fn demoted() -> Profile {
    let mut profile = build();
    profile.processes.iter_mut().for_each(|process| process.cgroup = None);
    let dropped = |bytes, count| Amount { bytes: Bytes(bytes), count };
    profile.processes[0].demotion =
        Demotion { at: Tick(5_000), min_size: Bytes(4096), dropped: dropped(3 << 19, 40_000), frees: 12_345 };
    profile.processes[2].demotion =
        Demotion { at: Tick(1 << 14), min_size: Bytes(64), dropped: dropped(2048, 64), frees: 3 };
    profile
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn frame(name: &str) -> Frame {
    Frame::new(Ok(Name(String::from(name))))
}

/// Returns the quantities of `count` blocks with `bytes` bytes in all. If `held` is not zero, one
/// block of `held` bytes was not freed.
fn exit(held: u64, bytes: u64, count: u64) -> Quantities {
    let exit = Amount { bytes: Bytes(held), count: u64::from(held > 0) };
    let alloc = Amount { bytes: Bytes(bytes), count };
    Quantities::ZERO
        .with_amount(Quantity::ExitBytes, exit)
        .with_amount(Quantity::AllocBytes, alloc)
        .with_free(alloc - exit)
}

fn add(profile: &mut Profile, process: usize, frames: &[usize], merged: u64, usage: Quantities) {
    profile.processes[process].total += usage;
    profile.stacks.push(StackProfile {
        process,
        part: Part::WHOLE,
        frames: frames.iter().copied().map(FrameId::new).collect(),
        end: StackEnd::Complete,
        label: None,
        usage: usage.with(Quantity::MergedStacks, merged),
        histograms: BlockHistograms::default(),
        live_changes: LiveChanges::default(),
    });
}
