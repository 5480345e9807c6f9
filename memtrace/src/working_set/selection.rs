//! Processes to measure.

use std::rc::Rc;

use memtrace_host::procfs::{self, MemoryGroups, Process, ProcessError};
use memtrace_model::{CgroupId, FilterRule, Pid, ProcessAttribute, UnmeasuredProcesses};

use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::Target;
use crate::targets::select::{LeftOut, RunningSelection, filter};

/// Selection of processes.
pub(super) enum Selection {
    /// Processes that were named by their pids. They are opened once: a pid can be reused.
    Named(Vec<Rc<Process>>),
    /// Processes that match rules at the time of each measurement.
    Matching(RunningSelection),
}

impl Selection {
    /// Opens the named processes, or looks up the values of the rules.
    ///
    /// # Errors
    ///
    /// A process, a user, an executable or a cgroup does not exist, or a named process cannot be read.
    pub(super) fn resolve(target: &Target, left_out: &LeftOut) -> Result<Self, Error> {
        if let Target::Pids { pids, .. } = target {
            let mut pids = pids.clone();
            pids.sort_unstable();
            let open = |pid| procfs::inspect(pid).map(Rc::new).map_err(|error| from_engines::process(pid, error));
            return pids.into_iter().map(open).collect::<Result<_, _>>().map(Self::Named);
        }
        Ok(Self::Matching(RunningSelection::new(filter::resolve(target, false, left_out.memtraces())?)))
    }

    /// Returns the processes, and the numbers of processes that cannot be opened. A named process may have exited.
    pub(super) fn processes(&self) -> Result<(Vec<Rc<Process>>, UnmeasuredProcesses), Error> {
        let mut unmeasured = UnmeasuredProcesses::default();
        let mut opened = Vec::new();
        match self {
            Self::Named(processes) => opened.clone_from(processes),
            Self::Matching(selection) => {
                let failed = |error| Error::Failed(format!("cannot list the processes: {error}"));
                let all = procfs::all_processes().map_err(failed)?;
                for pid in all.into_iter().filter(|&pid| selection.contains(pid)) {
                    match procfs::inspect(pid) {
                        Ok(process) => opened.push(Rc::new(process)),
                        Err(error) => count(&mut unmeasured, &error),
                    }
                }
            }
        }
        Ok((opened, unmeasured))
    }

    /// Returns the selected control groups that have a memory controller, and their descendants.
    pub(super) fn groups(target: &Target) -> Vec<CgroupId> {
        let Target::Selected { rules, .. } = target else { return Vec::new() };
        let Some(groups) = MemoryGroups::find() else { return Vec::new() };
        let path = |rule: &FilterRule| match &rule.attribute {
            ProcessAttribute::Cgroup(path) if !rule.exclude => Some(path.clone()),
            _ => None,
        };
        rules.iter().filter_map(path).flat_map(|path| groups.below(&path)).collect()
    }

    /// Returns true if all processes are ending, and no other one can be selected.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Named(processes) => processes.iter().all(|process| process.is_ending()),
            Self::Matching(_) => false,
        }
    }

    /// Counts a process if its references cannot be cleared. For a named process that has not
    /// exited, this is an error.
    pub(super) fn refuse(&self, pid: Pid, error: ProcessError, sum: &mut UnmeasuredProcesses) -> Result<(), Error> {
        match (self, &error) {
            (Self::Named(_), ProcessError::Exited(_)) | (Self::Matching(_), _) => {
                count(sum, &error);
                Ok(())
            }
            (Self::Named(_), _) => Err(from_engines::process(pid, error)),
        }
    }
}

/// Counts a process that cannot be measured, by reason.
pub(super) fn count(sum: &mut UnmeasuredProcesses, error: &ProcessError) {
    match error {
        ProcessError::Exited(_) | ProcessError::NoSuchProcess(_) => sum.exited += 1,
        ProcessError::Permission { .. } => sum.not_permitted += 1,
        other => {
            log::debug!("{other}");
            sum.unreadable += 1;
        }
    }
}
