//! Rows of processes in a report of bounded size: the largest processes, and remainders of all others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{Cgroup, Comm, Demotion, EndedGroup, PageFaults, Pid, ProcessProfile, Profile, Tick, User};

use super::order::largest_first;
use crate::Options;

/// Rows of processes in a bounded report.
pub(super) struct RowsOfProcesses {
    pub(super) processes: Vec<ProcessProfile>,
    /// For each process of the profile, the index of its row in `processes`.
    pub(super) row_of: Vec<usize>,
}

impl RowsOfProcesses {
    pub(super) fn unmerged(profile: &Profile) -> Self {
        Self { processes: profile.processes.clone(), row_of: (0..profile.processes.len()).collect() }
    }
}

/// Properties that all processes of a remainder share: the state, and the property that `--by` distinguishes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Shared<'a> {
    has_ended: bool,
    comm: Option<&'a str>,
    user: Option<&'a User>,
    cgroup: Option<&'a str>,
}

impl<'a> Shared<'a> {
    fn of(process: &'a ProcessProfile, options: &Options) -> Self {
        Self {
            has_ended: process.ended.is_some(),
            comm: options.by.is_comm().then(|| process.comm.raw()),
            user: process.user.as_ref().filter(|_| options.by.is_user()),
            cgroup: process.cgroup.as_ref().filter(|_| options.by.is_cgroup()).map(|cgroup| cgroup.path.as_str()),
        }
    }
}

/// Returns the `most` largest processes and the remainders of the others; `None` if there are no others.
pub(super) fn merged(profile: &Profile, options: &Options, most: usize) -> Option<RowsOfProcesses> {
    let all = &profile.processes;
    if all.len() <= most {
        return None;
    }
    let is_kept = largest(profile, most);
    let mut row_of = vec![0; all.len()];
    let mut processes = Vec::with_capacity(most);
    for (index, process) in all.iter().enumerate().filter(|(index, _)| is_kept[*index]) {
        row_of[index] = processes.len();
        processes.push(process.clone());
    }
    let mut remainders: BTreeMap<Shared<'_>, Vec<usize>> = BTreeMap::new();
    for (index, process) in all.iter().enumerate().filter(|(index, _)| !is_kept[*index]) {
        remainders.entry(Shared::of(process, options)).or_default().push(index);
    }
    for (shared, members) in remainders {
        members.iter().for_each(|&member| row_of[member] = processes.len());
        let mut remainder = remainder(&shared, &all[members[0]], profile.run.duration);
        members.iter().for_each(|&member| add(&mut remainder, &all[member], profile.run.duration));
        processes.push(remainder);
    }
    Some(RowsOfProcesses { processes, row_of })
}

/// Returns a flag for each process: true for the `most` largest ones.
fn largest(profile: &Profile, most: usize) -> Vec<bool> {
    let totals: Vec<_> = profile.processes.iter().map(|process| &process.total).collect();
    let mut is_kept = vec![false; profile.processes.len()];
    largest_first(profile.run.class, &totals).into_iter().take(most).for_each(|index| is_kept[index] = true);
    is_kept
}

/// Returns an empty remainder with the user and the cgroup of its first process. [`add`] removes the user or the cgroup
/// if another process has a different one.
fn remainder(shared: &Shared<'_>, first: &ProcessProfile, duration: Duration) -> ProcessProfile {
    let comm = match (shared.comm, shared.has_ended) {
        (Some(comm), _) => Comm::from(comm),
        (None, true) => "other ended processes".into(),
        (None, false) => "other processes".into(),
    };
    ProcessProfile {
        user: first.user.clone(),
        cgroup: first.cgroup.clone(),
        threads: first.threads.map(|_| 0),
        group: Some(EndedGroup { first_start: duration, ..EndedGroup::default() }),
        ..ProcessProfile::new(Pid(0), comm)
    }
}

/// Adds a process to a remainder. `duration`: duration of the trace.
fn add(sum: &mut ProcessProfile, process: &ProcessProfile, duration: Duration) {
    if let Some(group) = &mut sum.group {
        add_runs(group, process, duration);
        let ends = group.ends.iter().max_by_key(|&(&end, &runs)| (runs, std::cmp::Reverse(end)));
        sum.ended = ends.map(|(&end, _)| end);
        sum.ended_after = sum.ended.map(|_| group.last_end);
    }
    sum.total += process.total;
    sum.unmatched_frees = sum.unmatched_frees.saturating_add(process.unmatched_frees);
    sum.inherited_frees = sum.inherited_frees.saturating_add(process.inherited_frees);
    sum.repeated_frees = sum.repeated_frees.saturating_add(process.repeated_frees);
    sum.unmatched_samples = sum.unmatched_samples.saturating_add(process.unmatched_samples);
    sum.resident_is_unknown |= process.resident_is_unknown;
    let demotion = Demotion { at: Tick(0), ..process.demotion };
    sum.demotion.merge(demotion);
    sum.user = sum.user.take().filter(|user| process.user.as_ref() == Some(user));
    let path = |cgroup: &Arc<Cgroup>| cgroup.path.clone();
    sum.cgroup = sum.cgroup.take().filter(|cgroup| process.cgroup.as_ref().map(path) == Some(path(cgroup)));
    sum.threads = sum.threads.zip(process.threads).map(|(one, other)| one.saturating_add(other));
    sum.traced = sum.traced.saturating_add(process.traced);
    for (kind, stalls) in &process.stalls {
        sum.stalls.entry(*kind).or_default().merge(stalls);
    }
    if let Some(resident) = &process.resident {
        let all = sum.resident.get_or_insert_default();
        resident.0.iter().for_each(|(kind, resident)| all.0.entry(*kind).or_default().add(resident));
    }
    sum.rss = match (sum.rss, process.rss) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (one, other) => one.or(other),
    };
    sum.faults = [sum.faults, process.faults].into_iter().flatten().reduce(|one, other| PageFaults {
        minor: one.minor.saturating_add(other.minor),
        major: one.major.saturating_add(other.major),
    });
}

fn add_runs(group: &mut EndedGroup, process: &ProcessProfile, duration: Duration) {
    group.runs = group.runs.saturating_add(process.runs());
    match (&process.group, process.ended) {
        (Some(own), _) => {
            own.ends.iter().for_each(|(&end, &runs)| *group.ends.entry(end).or_default() += runs);
            group.first_start = group.first_start.min(own.first_start);
            group.last_end = group.last_end.max(own.last_end);
        }
        (None, ended) => {
            let end = process.ended_after.unwrap_or(duration);
            ended.into_iter().for_each(|end| *group.ends.entry(end).or_default() += 1);
            group.first_start = group.first_start.min(end.saturating_sub(process.traced));
            group.last_end = group.last_end.max(end);
        }
    }
}
