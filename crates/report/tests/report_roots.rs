//! The groups of every grouping add up to the total, and every format has the same groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    AllocatorId, Amount, BlockHistograms, Bytes, Cgroup, Frame, FrameId, GroupBy, LiveChanges, Measure, Metric, Name,
    Part, Pid, ProcessProfile, Profile, Quantities, Quantity, RunFacts, StackEnd, StackProfile, Tid, User,
};
use memtrace_report::{Format, Options, write};
use proptest::prelude::*;
use serde_json::Value;

const MEMORY_NUMBERS: [&str; 8] =
    ["live_bytes", "live_count", "exit_bytes", "exit_count", "alloc_bytes", "alloc_count", "free_bytes", "free_count"];

fn report(format: Format, profile: &Profile, metric: Metric, by: GroupBy) -> String {
    let options = Options { metric, by, top: usize::MAX, all_stacks: false, subject: String::from("the host") };
    let mut bytes = Vec::new();
    write(format, profile, &options, &mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("reports are UTF-8")
}

fn any_process() -> impl Strategy<Value = ProcessProfile> {
    let user = prop::option::of((0..3u32, prop::option::of("[ab]")).prop_map(|(uid, name)| User { uid, name }));
    let cgroup = prop::option::of("/[ab]").prop_map(|path| path.map(|path| Cgroup { path, ..Cgroup::default() }));
    let names = prop::collection::btree_map((0..4u32).prop_map(Tid), "[a-c]", 0..3);
    (0..3u32, "[ab]", user, cgroup, names).prop_map(|(pid, comm, user, cgroup, thread_names)| ProcessProfile {
        user,
        cgroup: cgroup.map(Arc::new),
        thread_names,
        ..ProcessProfile::new(Pid(pid), comm)
    })
}

fn any_amount() -> impl Strategy<Value = Amount> {
    (0..1000u64, 0..10u64).prop_map(|(bytes, count)| Amount { bytes: Bytes(bytes), count })
}

/// Strategy for a stack of any process.
fn any_stack() -> impl Strategy<Value = (prop::sample::Index, StackProfile)> {
    let part = prop_oneof![
        Just(Part::WHOLE),
        (0..4u32).prop_map(|tid| Part::WHOLE.with_thread(Tid(tid))),
        (0..4u16).prop_map(|id| Part::WHOLE.with_allocator(AllocatorId(id))),
    ];
    let frames = prop::collection::vec((0..3usize).prop_map(FrameId::new), 0..3);
    let usage = (any_amount(), any_amount(), any_amount()).prop_map(|(live, exit, free)| {
        Quantities::ZERO
            .with_amount(Quantity::LiveBytes, live)
            .with_amount(Quantity::ExitBytes, exit)
            .with_amount(Quantity::AllocBytes, live + exit + free)
            .with_free(free)
    });
    let at_peak = 0..1000u64;
    (any::<prop::sample::Index>(), part, frames, usage, at_peak).prop_map(|(process, part, frames, usage, at_peak)| {
        (
            process,
            StackProfile {
                process: 0,
                part,
                frames: frames.into(),
                end: StackEnd::Complete,
                label: None,
                usage: usage.with(Quantity::AtPeakBytes, at_peak),
                histograms: BlockHistograms::default(),
                live_changes: LiveChanges::default(),
            },
        )
    })
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let processes = prop::collection::vec(any_process(), 1..5);
    (processes, prop::collection::vec(any_stack(), 0..12)).prop_map(|(mut processes, stacks)| {
        let stacks: Vec<_> = stacks
            .into_iter()
            .map(|(process, stack)| StackProfile { process: process.index(processes.len()), ..stack })
            .collect();
        for stack in &stacks {
            let process = &mut processes[stack.process];
            process.total += stack.usage;
            process.peak = Some(Bytes(1000));
        }
        let frame = |name: &str| Frame::new(Ok(Name(String::from(name))));
        Profile {
            run: RunFacts {
                duration: Duration::from_secs(1),
                allocators: BTreeMap::from([1, 2].map(|id| (AllocatorId(id), format!("malloc {id}!")))),
                ..RunFacts::default()
            },
            processes,
            stacks,
            frames: ["f", "g", "h"].map(frame).into(),
            ..Profile::default()
        }
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn groups_add_up_to_the_total_in_every_format(profile in any_profile()) {
        for &by in GroupBy::ALL {
            for metric in Metric::ALL {
                let json: Value = serde_json::from_str(&report(Format::Json, &profile, metric, by)).unwrap();
                let roots = json["roots"].as_array().unwrap();
                let stacks = json["stacks"].as_array().unwrap();
                prop_assert_eq!(&json["by"], by.name());
                for key in MEMORY_NUMBERS {
                    let sum: u64 = roots.iter().map(|root| number(&root[key])).sum();
                    prop_assert_eq!(sum, number(&json["totals"][key]), "{} by {}", key, by.name());
                    for (index, root) in roots.iter().enumerate() {
                        let under = stacks.iter().filter(|stack| stack["root"] == index);
                        prop_assert_eq!(under.map(|stack| number(&stack[key])).sum::<u64>(), number(&root[key]));
                    }
                }

                // The folded stacks have the groups with a value of the metric. In a whole trace, growth equals live
                // bytes.
                let is_growth = matches!(metric, Metric::NetGrowth | Metric::Growth);
                let key = match metric {
                    _ if is_growth => String::from("live_bytes"),
                    Metric::Temporary => String::from("temporary_count"),
                    _ => metric.name().replace('-', "_"),
                };
                let expected: BTreeMap<&str, u64> = roots
                    .iter()
                    .map(|root| (root["name"].as_str().unwrap(), root[&key].as_u64().unwrap_or(0)))
                    .filter(|(_, value)| *value > 0)
                    .collect();
                prop_assert!(roots.windows(2).all(|pair| pair[0]["name"].as_str() < pair[1]["name"].as_str()));
                let folded = report(Format::Folded, &profile, metric, by);
                let mut found: BTreeMap<&str, u64> = BTreeMap::new();
                for line in folded.lines() {
                    let (stack, value) = line.rsplit_once(' ').unwrap();
                    *found.entry(stack.split(';').next().unwrap()).or_default() += value.parse::<u64>().unwrap();
                }
                prop_assert_eq!(&found, &expected, "{} by {}", metric.name(), by.name());

                // The titles of the flame graph have these groups too.
                let svg = report(Format::Svg, &profile, metric, by);
                for (name, value) in &expected {
                    let title = format!("<title>{name} ({value} {}", unit(metric));
                    let value = value.to_string();
                    prop_assert!(value.len() > 3 || svg.contains(&title), "{} not in\n{}", title, svg);
                }

                // Each site of the text names one of these groups.
                if profile.processes.len() > 1 || by != GroupBy::Process {
                    let text = report(Format::Text, &profile, metric, by);
                    let listed = text.lines().filter(|line| line.contains("%  "));
                    let mut named = 0;
                    for line in listed {
                        named += 1;
                        prop_assert!(expected.keys().any(|name| line.ends_with(&format!(", {name}"))), "{}", line);
                    }
                    prop_assert!(named >= expected.len(), "{}", text);
                }
            }
        }
    }
}

fn unit(metric: Metric) -> &'static str {
    match metric.measure() {
        Measure::Bytes => "bytes",
        Measure::Count => "blocks",
        Measure::Time => "ns",
    }
}

#[test]
fn unknown_owners_are_a_group() {
    let stack = |part| StackProfile {
        process: 0,
        part,
        frames: [].into(),
        end: StackEnd::NotTaken,
        label: None,
        usage: Quantities::ZERO
            .with_amount(Quantity::LiveBytes, Amount::one(Bytes(7)))
            .with_amount(Quantity::AllocBytes, Amount::one(Bytes(7)))
            .with_free(Amount::default()),
        histograms: BlockHistograms::default(),
        live_changes: LiveChanges::default(),
    };
    let profile = Profile {
        processes: vec![ProcessProfile::new(Pid(9), "sh")],
        stacks: vec![
            stack(Part::WHOLE),
            stack(Part::WHOLE.with_thread(Tid(9))),
            stack(Part::WHOLE.with_allocator(AllocatorId::UNKNOWN)),
        ],
        ..Profile::default()
    };
    let folded = |by| report(Format::Folded, &profile, Metric::LiveBytes, by);
    assert_eq!(folded(GroupBy::Process), "sh (9);[stack not taken] 21\n");
    assert_eq!(folded(GroupBy::Comm), "sh;[stack not taken] 21\n");
    assert_eq!(folded(GroupBy::User), "[user not known];[stack not taken] 21\n");
    assert_eq!(folded(GroupBy::Cgroup), "[control group not known];[stack not taken] 21\n");
    assert_eq!(folded(GroupBy::Allocator), "[allocator not known];[stack not taken] 21\n");
    assert_eq!(folded(GroupBy::Thread), "[thread not known];[stack not taken] 14\nsh (9);[stack not taken] 7\n");
}
