use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    AllocatorId, Amount, Bytes, Cgroup, EndedGroup, Frame, GroupBy, ImageEnd, Metric, Name, Pid, ProcessProfile,
    Quantities, RunFacts, SampleSum, Tid, User,
};
use proptest::prelude::*;

use super::*;
use crate::estimate::SampledPart;
use crate::groups::Groups;
use crate::stack_quality::StackQuality;
use crate::{Format, Options, write};

fn any_process() -> impl Strategy<Value = ProcessProfile> {
    let user = prop::option::of((0..3u32).prop_map(|uid| User { uid, name: None }));
    let cgroup = prop::option::of("/[ab]").prop_map(|path| path.map(|path| Cgroup { path, ..Cgroup::default() }));
    let ended = prop::option::of(prop_oneof![Just(ImageEnd::Exit), Just(ImageEnd::Exec)]);
    let group = prop::option::of(2..9u64);
    (0..3u32, "[ab\u{1}]{1,2}", user, cgroup, ended, group).prop_map(|(pid, comm, user, cgroup, ended, runs)| {
        let group = runs.filter(|_| ended.is_some()).map(|runs| EndedGroup {
            runs,
            ends: ended.into_iter().map(|end| (end, runs)).collect(),
            ..EndedGroup::default()
        });
        ProcessProfile {
            user,
            cgroup: cgroup.map(Arc::new),
            ended,
            group,
            unmatched_frees: u64::from(pid),
            traced: Duration::from_secs(1),
            ..ProcessProfile::new(Pid(pid), comm)
        }
    })
}

fn any_stack() -> impl Strategy<Value = (prop::sample::Index, StackProfile)> {
    let part = prop_oneof![
        Just(Part::WHOLE),
        (0..4u32).prop_map(|tid| Part::WHOLE.with_thread(Tid(tid))),
        (0..4u16).prop_map(|id| Part::WHOLE.with_allocator(AllocatorId(id))),
    ];
    let frames = prop::collection::vec((0..5usize).prop_map(FrameId::new), 0..5);
    let amount = || (0..1000u64, 0..10u64).prop_map(|(bytes, count)| Amount { bytes: Bytes(bytes), count });
    let end = prop_oneof![Just(StackEnd::Complete), Just(StackEnd::Truncated)];
    let merged = prop_oneof![4 => Just(0u64), 1 => 1..100u64];
    let label = prop::option::of((0..3usize).prop_map(LabelId::new));
    let samples = prop_oneof![2 => Just(0u64), 1 => 1..100u64];
    (any::<prop::sample::Index>(), part, frames, amount(), amount(), end, merged, label, samples).prop_map(
        |(process, part, frames, live, free, end, merged, label, samples)| {
            let frames = if merged > 0 { [].into() } else { frames.into() };
            let usage = Quantities::ZERO
                .with_amount(Quantity::LiveBytes, live)
                .with_amount(Quantity::AllocBytes, live + free)
                .with_free(free);
            let SampleSum { spread, .. } = SampleSum::of_poisson(samples, Bytes(1 << 16), Bytes(1 << 40), 1);
            let usage = usage.with(Quantity::MergedStacks, merged).with_spreads(spread, spread);
            let stack = StackProfile { usage, label, ..StackProfile::new(0, part, frames, end) };
            (process, stack)
        },
    )
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let processes = prop::collection::vec(any_process(), 1..8);
    (processes, prop::collection::vec(any_stack(), 0..30)).prop_map(|(mut processes, stacks)| {
        let stacks: Vec<_> = stacks
            .into_iter()
            .map(|(process, stack)| StackProfile { process: process.index(processes.len()), ..stack })
            .map(|stack| {
                ((stack.process, stack.part, stack.frames.clone(), stack.end, stack.merged(), stack.label), stack)
            })
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect();
        for stack in &stacks {
            processes[stack.process].total += stack.usage;
        }
        let frame = |name: &str| Frame::new(Ok(Name(String::from(name))));
        let frames = ["f", "g", "h\"\u{1}", "i", "j"].map(frame).into();
        let labels = ["a", "b\"\u{1}", "c"].map(String::from).into();
        Profile {
            run: RunFacts { duration: Duration::from_secs(9), ..RunFacts::default() },
            processes,
            stacks,
            frames,
            labels,
            ..Profile::default()
        }
    })
}

fn options(by: GroupBy) -> Options {
    Options { metric: Metric::LiveBytes, by, top: 0, all_stacks: true, subject: String::from("the host") }
}

fn by_group(profile: &Profile, by: GroupBy) -> BTreeMap<String, Quantities> {
    Groups::of(profile, by).all().iter().map(|group| (group.label.clone(), group.usage.additive())).collect()
}

/// Returns the process, part, frames and usage of each stack that is not a sum, as a text.
fn stacks_of(profile: &Profile) -> BTreeSet<String> {
    let names = |stack: &StackProfile| {
        stack.frames.iter().map(|frame| profile.frames[frame.index()].label()).collect::<Vec<_>>()
    };
    let own = profile.stacks.iter().filter(|stack| stack.merged() == 0);
    own.map(|stack| {
        let process = &profile.processes[stack.process];
        format!("{} {} {:?} {:?} {:?}", process.pid, process.comm, stack.part, names(stack), stack.usage)
    })
    .collect()
}

fn stack_count(profile: &Profile) -> u64 {
    profile.stacks.iter().map(|stack| stack.merged().max(1)).sum()
}

proptest! {
    #[test]
    fn bounded_profile_has_the_same_sums(profile in any_profile(), bytes in 0..200_000_usize, processes in 0..8_usize) {
        for &by in GroupBy::ALL {
            let bounded = bounded(&profile, &options(by), Limits { bytes, processes });
            prop_assert_eq!(bounded.total().additive(), profile.total().additive());
            let sampled = |profile: &Profile| SampledPart::of_profile(profile).sum().additive();
            prop_assert_eq!(sampled(&bounded), sampled(&profile));
            prop_assert_eq!(StackQuality::of(&bounded), StackQuality::of(&profile));
            prop_assert_eq!(bounded.unmatched_frees(), profile.unmatched_frees());
            prop_assert_eq!(bounded.has_ended(), profile.has_ended());
            let runs = |profile: &Profile| profile.processes.iter().map(ProcessProfile::runs).sum::<u64>();
            prop_assert_eq!(runs(&bounded), runs(&profile));
            for (row, process) in bounded.processes.iter().enumerate() {
                let of_row = bounded.stacks.iter().filter(|stack| stack.process == row);
                let sum = of_row.fold(Quantities::default(), |mut sum, stack| { sum += stack.usage; sum });
                prop_assert_eq!(sum.additive(), process.total.additive());
            }
            // Merged processes keep the sums of all groups other than processes and threads.
            if !matches!(by, GroupBy::Process | GroupBy::Thread) {
                prop_assert_eq!(by_group(&bounded, by), by_group(&profile, by), "{}", by.name());
            }
            if processes >= profile.processes.len() {
                prop_assert_eq!(stack_count(&bounded), stack_count(&profile));
                prop_assert_eq!(by_group(&bounded, by), by_group(&profile, by), "{}", by.name());
                let (kept, all) = (stacks_of(&bounded), stacks_of(&profile));
                prop_assert!(kept.is_subset(&all), "{:?}", kept.difference(&all));
            }
        }
    }

    #[test]
    fn estimated_size_is_not_exceeded(profile in any_profile(), by in prop::sample::select(GroupBy::ALL)) {
        let mut json = Vec::new();
        write(Format::Json, &profile, &options(by), &mut json).unwrap();
        prop_assert!(json.len() <= Sizes::new(&profile).total());
    }
}

fn stack(process: usize, frame: usize, live: u64, alloc: u64) -> StackProfile {
    let amount = |bytes| Amount { bytes: Bytes(bytes), count: 1 };
    let usage = Quantities::ZERO
        .with_amount(Quantity::LiveBytes, amount(live))
        .with_amount(Quantity::AllocBytes, amount(alloc));
    StackProfile { usage, ..StackProfile::new(process, Part::WHOLE, [FrameId::new(frame)].into(), StackEnd::Complete) }
}

fn frame(index: usize) -> Frame {
    Frame::new(Ok(Name(format!("f{index}"))))
}

fn ended(pid: u32, comm: &str, alloc: u64) -> ProcessProfile {
    let alloc = Amount { bytes: Bytes(alloc), count: 1 };
    ProcessProfile {
        ended: Some(ImageEnd::Exit),
        ended_after: Some(Duration::from_secs(pid.into())),
        traced: Duration::from_secs(1),
        total: Quantities::ZERO.with_amount(Quantity::AllocBytes, alloc).with_free(alloc),
        ..ProcessProfile::new(Pid(pid), comm)
    }
}

#[test]
fn stacks_large_by_any_metric_are_kept() {
    let stacks: Vec<_> = (0..1000_u64)
        .map(|index| match index {
            500 => stack(0, 500, 1 << 20, 1 << 20),
            700 => stack(0, 700, 0, 1 << 30),
            small => stack(0, small as usize, 1, 1),
        })
        .collect();
    let mut process = ProcessProfile::new(Pid(1), "p");
    stacks.iter().for_each(|stack| process.total += stack.usage);
    let frames = (0..1000).map(frame).collect();
    let profile = Profile { processes: vec![process], stacks, frames, ..Profile::default() };
    let bounded = bounded(&profile, &options(GroupBy::Process), Limits { bytes: 69_100, processes: 1 });
    let shown: Vec<_> = bounded
        .stacks
        .iter()
        .map(|stack| (stack.frames.first().map(|frame| bounded.frames[frame.index()].label()), stack.merged()))
        .collect();
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown.contains(&(Some(String::from("f500")), 0)) && shown.contains(&(Some(String::from("f700")), 0)));
    assert_eq!(shown.last(), Some(&(None, 998)));
    assert_eq!(bounded.frames.len(), 2);
}

#[test]
fn small_processes_are_merged_by_their_state() {
    let running = ProcessProfile { ended: None, ended_after: None, ..ended(9, "idle", 3) };
    let processes = vec![ended(1, "cc", 10), ended(2, "ld", 100), ended(3, "as", 10), running];
    let profile = Profile {
        run: RunFacts { duration: Duration::from_secs(10), ..RunFacts::default() },
        processes,
        ..Profile::default()
    };
    let bounded = bounded(&profile, &options(GroupBy::Process), Limits { bytes: 1 << 20, processes: 1 });
    let titles: Vec<_> = bounded.processes.iter().map(crate::escape::process_title).collect();
    assert_eq!(titles, ["ld (2)", "other processes ×1", "other ended processes ×2"]);
    let group = bounded.processes[2].group.as_ref().unwrap();
    assert_eq!((group.first_start, group.last_end), (Duration::ZERO, Duration::from_secs(3)));
    assert_eq!(group.ends, BTreeMap::from([(ImageEnd::Exit, 2)]));
    let group = bounded.processes[1].group.as_ref().unwrap();
    assert_eq!((group.first_start, group.last_end), (Duration::from_secs(9), Duration::from_secs(10)));
    assert_eq!(bounded.processes[1].ended, None);
}

#[test]
fn small_profile_is_not_copied() {
    let profile = Profile { processes: vec![ended(1, "cc", 10)], ..Profile::default() };
    assert!(matches!(bounded(&profile, &options(GroupBy::Process), Limits::FILE), Cow::Borrowed(_)));
}
