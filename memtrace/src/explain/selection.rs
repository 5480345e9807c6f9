//! Memory of several processes, read without tracing and within a time limit.
//!
//! The sizes come from `smaps_rollup`, so each process costs one walk of its page tables. The heaps of the largest
//! processes are read too.

mod sizes;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memtrace_host::kernel::Memtraces;
use memtrace_host::procfs::{self, MemoryGroups, Process, ProcessError};
use memtrace_host::unread_files;
use memtrace_model::{
    Bytes, Comm, HeapSource, Pid, ProcessAttribute, ProcessUse, ProcessesUse, SelectedCgroup, SelectionExplanation,
    UnreadProcess, UnreadProcesses, UnreadReason,
};

use super::process_error;
use crate::run_kit::error::Error;
use crate::targets::select::{RunningSelection, Target, filter};

/// Time for the sizes of all processes. The largest ones are read first.
const TIME_FOR_SIZES: Duration = Duration::from_secs(20);
/// Time for the heaps of the largest processes.
const TIME_FOR_HEAPS: Duration = Duration::from_secs(5);
/// Heap memory that is read in a second, at least. A heap that would take longer than the time that is left is not read.
const HEAP_IN_A_SECOND: u64 = 512 << 20;
/// Maximum number of heaps that are read.
const MAX_HEAPS: usize = 50;
/// Maximum number of processes in the result. Smaller ones are added up.
const MAX_LISTED: usize = 1 << 16;
/// Maximum number of pids in the name of a selection.
const NAMED_PIDS: usize = 3;

/// Selected process that is to be read.
struct Candidate {
    pid: Pid,
    comm: Comm,
    rss: Bytes,
}

/// Reads the memory of the selected processes and of their control groups.
///
/// # Errors
///
/// A named process, user, executable or control group does not exist, or there is neither a process nor a control group that
/// can be read.
pub(super) fn explain_selection(target: &Target) -> Result<SelectionExplanation, Error> {
    let mut unread = UnreadProcesses::default();
    let candidates = candidates(&selected_pids(target)?, &mut unread);
    let (mut processes, mut others) = (Vec::new(), ProcessesUse::default());
    let mut heaps = Vec::new();
    let deadline = Instant::now() + TIME_FOR_SIZES;
    for candidate in candidates {
        let is_late = Instant::now() >= deadline;
        let read = if is_late { Err(UnreadReason::Late) } else { read(candidate.pid).map_err(|error| reason(&error)) };
        match read {
            Ok((usage, process)) if processes.len() < MAX_LISTED => {
                if heaps.len() < MAX_HEAPS {
                    heaps.push((processes.len(), process));
                }
                processes.push(usage);
            }
            Ok((usage, _)) => others.add(usage.sizes),
            Err(reason) => unread.add(candidate.unread(reason)),
        }
    }
    let mut file_timeouts = read_heaps(heaps, &mut processes);
    processes.sort_by_key(|process: &ProcessUse| (Reverse(process.sizes.pss), process.pid));
    let (cgroups, unknown_cgroups) = cgroups(target, &processes);
    let is_whole_machine = matches!(target, Target::Selected { .. }) && !target.includes_some();
    file_timeouts += unread_files::take().values().sum::<u64>();
    let explanation = SelectionExplanation {
        name: name(target),
        processes,
        others,
        unread,
        cgroups,
        unknown_cgroups,
        machine: is_whole_machine.then(procfs::memory_by_type).flatten(),
        pressure: procfs::machine_pressure(),
        file_timeouts,
    };
    match missing(&explanation) {
        Some(error) => Err(error),
        None => Ok(explanation),
    }
}

/// Returns the pids of the selected processes, ordered by pid.
fn selected_pids(target: &Target) -> Result<Vec<Pid>, Error> {
    let failed = |error| Error::Failed(format!("cannot list the processes: {error}"));
    if let Target::Pids { pids, children } = target {
        for &pid in pids {
            procfs::inspect(pid).map_err(|error| process_error::user_error(pid, error))?;
        }
        let mut selected = pids.clone();
        if *children {
            selected.extend(procfs::descendants(pids).map_err(failed)?);
        }
        selected.sort_unstable();
        selected.dedup();
        return Ok(selected);
    }
    // The sums include other memtrace processes, because they use memory of the machine. A trace leaves out their allocations.
    let selection = RunningSelection::new(filter::resolve(target, false, &Memtraces::default())?);
    let mut pids = procfs::all_processes().map_err(failed)?;
    pids.retain(|&pid| selection.contains(pid));
    Ok(pids)
}

/// Returns the processes that still run, the largest RSS first. `pids`: ordered by pid.
fn candidates(pids: &[Pid], unread: &mut UnreadProcesses) -> Vec<Candidate> {
    let mut candidates = Vec::with_capacity(pids.len());
    for &pid in pids {
        let comm: Comm = procfs::comm(pid).unwrap_or_default().into();
        match procfs::counted(pid) {
            Ok(counted) if shares_memory(pid, pids) => {
                unread.add(UnreadProcess { pid, comm, rss: Some(counted.rss), reason: UnreadReason::SharesMemory });
            }
            Ok(counted) => candidates.push(Candidate { pid, comm, rss: counted.rss }),
            Err(error) => unread.add(UnreadProcess { pid, comm, rss: None, reason: reason(&error) }),
        }
    }
    candidates.sort_by_key(|candidate| (Reverse(candidate.rss), candidate.pid));
    candidates
}

/// Returns true if a process uses the memory of its parent, and the parent is one of `pids`. The kernel counts a page of this
/// memory as mapped once, so the PSS of each of the two processes contains the whole page.
fn shares_memory(pid: Pid, pids: &[Pid]) -> bool {
    procfs::parent_with_same_memory(pid).is_some_and(|parent| pids.binary_search(&parent).is_ok())
}

impl Candidate {
    fn unread(self, reason: UnreadReason) -> UnreadProcess {
        UnreadProcess { pid: self.pid, comm: self.comm, rss: Some(self.rss), reason }
    }
}

/// Reads the sizes of a process.
fn read(pid: Pid) -> Result<(ProcessUse, Process), ProcessError> {
    let process = procfs::inspect(pid)?;
    let counted = procfs::counted(pid)?;
    let sizes = sizes::of_process(procfs::rollup(pid)?, counted.page_tables);
    // If the process has exited, the pid may belong to another one by now.
    if process.has_exited() {
        return Err(ProcessError::Exited(pid));
    }
    Ok((ProcessUse { pid, comm: process.comm.clone(), sizes, is_heap_known: false }, process))
}

fn reason(error: &ProcessError) -> UnreadReason {
    match error {
        ProcessError::Exited(_) | ProcessError::NoSuchProcess(_) => UnreadReason::Exited,
        ProcessError::Permission { .. } => UnreadReason::NotPermitted,
        other => {
            log::debug!("{other}");
            UnreadReason::Unreadable
        }
    }
}

/// Reads the heaps of processes, given with their index in `processes`. Returns the number of reads that timed out.
fn read_heaps(heaps: Vec<(usize, Process)>, processes: &mut [ProcessUse]) -> u64 {
    let deadline = Instant::now() + TIME_FOR_HEAPS;
    let mut timeouts = 0;
    for (index, process) in heaps {
        let Some(usage) = processes.get_mut(index) else { continue };
        let left = deadline.saturating_duration_since(Instant::now());
        let most = HEAP_IN_A_SECOND as f64 * left.as_secs_f64();
        if usage.sizes.resident.0 as f64 > most {
            continue;
        }
        let Ok(explanation) = super::explain(&process, Some(deadline)) else { continue };
        timeouts += explanation.file_timeouts;
        let HeapSource::Known(stats) = explanation.heap.source else { continue };
        // After the deadline, arenas may be missing.
        if stats.undetermined.0 == 0 && Instant::now() < deadline {
            let anonymous = explanation.counted.anonymous;
            usage.is_heap_known = true;
            usage.sizes.returnable.heap = sizes::proportional(stats.trimmable, usage.sizes.anonymous, anonymous);
        }
    }
    timeouts
}

/// Returns the control groups of a selection, and the paths of selected ones with unknown memory.
fn cgroups(target: &Target, processes: &[ProcessUse]) -> (Vec<SelectedCgroup>, Vec<String>) {
    let paths = selected_cgroups(target);
    if paths.is_empty() {
        let common = common_cgroup(processes).and_then(|path| procfs::memory_of_cgroup(&path));
        // Except in a container, the root of the hierarchy has the memory of the whole machine, so it is left out.
        let common = common.filter(|memory| memory.path != "/" || memory.limit.is_some());
        let selected = common.map(|memory| SelectedCgroup { memory, given: None, is_whole: false });
        return (selected.into_iter().collect(), Vec::new());
    }
    // With further rules, the selection can lack processes of the group, or contain processes outside of it.
    let has_one_rule = matches!(target, Target::Selected { rules, .. } if rules.len() == 1);
    let (mut cgroups, mut unknown) = (Vec::new(), Vec::new());
    for path in paths {
        let given = path.to_string_lossy().into_owned();
        match procfs::memory_of_cgroup(path) {
            Some(memory) => {
                let is_whole = has_one_rule && contains_all(&memory.path, processes);
                cgroups.push(SelectedCgroup { memory, given: Some(given), is_whole });
            }
            None => unknown.push(given),
        }
    }
    (cgroups, unknown)
}

/// Returns true if all processes that still run are in the control group at `path` or a descendant. If the processes were
/// selected by a group of another hierarchy, they may be elsewhere.
fn contains_all(path: &str, processes: &[ProcessUse]) -> bool {
    let Some(groups) = MemoryGroups::find() else { return false };
    processes.iter().filter_map(|process| groups.of(process.pid)).all(|group| group.starts_with(path))
}

/// Returns the control groups that the user selected.
fn selected_cgroups(target: &Target) -> Vec<&Path> {
    let Target::Selected { rules, .. } = target else { return Vec::new() };
    let included = rules.iter().filter(|rule| !rule.exclude);
    let paths = included.filter_map(|rule| match &rule.attribute {
        ProcessAttribute::Cgroup(path) => Some(path.as_path()),
        _ => None,
    });
    paths.collect()
}

/// Returns the control group that contains all processes; `None` if they are in different ones.
fn common_cgroup(processes: &[ProcessUse]) -> Option<PathBuf> {
    let groups = MemoryGroups::find()?;
    let mut paths = BTreeSet::new();
    for process in processes {
        paths.extend(groups.of(process.pid));
        if paths.len() > 1 {
            return None;
        }
    }
    paths.pop_first()
}

/// Returns the name of a selection: `process 7 with its child processes`, `the processes of user www-data`.
fn name(target: &Target) -> String {
    match target {
        Target::Pids { pids, children } => {
            let shown = memtrace_model::format::limited_list(pids.iter().map(ToString::to_string), NAMED_PIDS);
            let processes = if pids.len() == 1 { "process" } else { "processes" };
            let child_processes = match (children, pids.len()) {
                (false, _) => "",
                (true, 1) => " with its child processes",
                (true, _) => " with their child processes",
            };
            format!("{processes} {shown}{child_processes}")
        }
        Target::Selected { rules, .. } => filter::describe(rules),
        // The command line has no such target.
        Target::Command { .. } => String::from("a command"),
    }
}

/// Returns the error for a selection without a process or a control group that was read.
fn missing(explanation: &SelectionExplanation) -> Option<Error> {
    let SelectionExplanation { name, processes, unread, cgroups, .. } = explanation;
    if !processes.is_empty() || !cgroups.is_empty() {
        return None;
    }
    if unread.not_permitted > 0 {
        return Some(Error::Permission {
            action: format!("read {name}"),
            capability: String::from("CAP_SYS_PTRACE, or the own user of each process with at least its capabilities"),
        });
    }
    if !unread.is_complete() {
        return Some(Error::CannotMeasure {
            message: format!("{name} cannot be read"),
            remedy: String::from("threads in the state D of `ps -L` wait for a file system; run it again later"),
        });
    }
    let message = if unread.exited > 0 { "ended before they were read" } else { "do not run" };
    Some(Error::NothingSelected {
        message: format!("{name} {message}"),
        remedy: String::from("`ps -e` lists all processes"),
    })
}

#[cfg(test)]
mod tests;
