//! Properties of the folded stacks.

use memtrace_model::{GroupBy, Metric, Profile};
use memtrace_report::{Format, Options};

use super::sample::sample;
use super::{options, report};

#[test]
fn an_empty_profile_has_no_folded_stacks() {
    assert_eq!(report(Format::Folded, &Profile::default(), &options(Metric::LiveBytes)), "");
}

#[test]
fn folded_lines_are_sorted_and_distinct_for_any_names() {
    for metric in Metric::ALL {
        let folded = report(Format::Folded, &sample(), &options(metric));
        let lines: Vec<(&str, u64)> = folded
            .lines()
            .map(|line| line.rsplit_once(' ').map(|(stack, value)| (stack, value.parse().unwrap())).unwrap())
            .collect();
        assert!(lines.is_sorted_by(|one, next| one.0 < next.0), "{folded}");
        assert!(folded.chars().all(|c| c == '\n' || !c.is_control()));
        let sum: u64 = sample().stacks.iter().map(|stack| metric.value(&stack.usage)).sum();
        assert_eq!(lines.iter().map(|(_, value)| value).sum::<u64>(), sum, "{}", metric.name());
        let drawn = sample().stacks.iter().filter(|stack| metric.value(&stack.usage) > 0).count();
        assert_eq!(lines.len(), drawn, "{}", metric.name());
    }
}

#[test]
fn equal_folded_stacks_of_two_processes_are_joined() {
    let mut profile = sample();
    profile.processes[2].comm = profile.processes[1].comm.clone();
    for stack in &mut profile.stacks {
        stack.frames = [].into();
    }
    let by_comm = Options { by: GroupBy::Comm, ..options(Metric::AllocCount) };
    let folded = report(Format::Folded, &profile, &by_comm);
    let joined: Vec<_> = folded.lines().filter(|line| line.starts_with("redis-server;[stack empty]")).collect();
    assert_eq!(joined, ["redis-server;[stack empty] 1665"]);
}
