//! PIDs and names of the processes of a trace.

use std::collections::BTreeMap;

use memtrace_model::{ProcessProfile, Profile};

use crate::escape;

/// Upper bound of the kernel's PIDs (include/linux/threads.h, `PID_MAX_LIMIT`).
const PIDS: u32 = 1 << 22;

/// Returns the PID of a process, or a number above all PIDs for a group of processes.
pub(super) fn pid_of(profile: &Profile, index: usize) -> u32 {
    let process = &profile.processes[index];
    if process.group.is_some() { PIDS + index as u32 } else { process.pid.0 }
}

/// Returns the names of the processes. Images with the same PID are one process, which has the name of the last
/// image.
pub(super) fn names(profile: &Profile) -> BTreeMap<u32, String> {
    let name = |(index, process): (usize, &ProcessProfile)| {
        let comm = escape::visible(process.comm.raw());
        let runs = process.group.as_ref().map_or_else(String::new, |group| format!(" {}", escape::times(group.runs)));
        (pid_of(profile, index), comm + &runs)
    };
    let over_time = profile.run.timeline.iter().flat_map(|timeline| &timeline.processes);
    let over_time = over_time.map(|process| (process.id.pid.0, escape::visible(process.comm.raw())));
    let active = profile.run.activity.iter().flat_map(|activity| &activity.threads);
    let active = active.map(|thread| (thread.pid.0, escape::visible(thread.process.raw())));
    active.chain(over_time).chain(profile.processes.iter().enumerate().map(name)).collect()
}
