//! Processes to measure.

use std::rc::Rc;

use crate::kernel::ProcessFilter;
use crate::model::{Pid, UnmeasuredProcesses};
use crate::procfs::{self, Hierarchies, Process, ProcessError};
use crate::session::config::Target;
use crate::session::error::{Error, from_engines};
use crate::session::select::filter;

/// Selects processes.
pub(super) enum Selection {
    /// Processes that were named by their pids. They are opened once: a pid can be reused.
    Named(Vec<Rc<Process>>),
    /// Processes that match rules at the time of each measurement.
    Matching { filter: ProcessFilter, hierarchies: Option<Hierarchies> },
}

impl Selection {
    /// Opens the named processes, or looks up the values of the rules.
    ///
    /// # Errors
    ///
    /// A process, a user, an executable or a cgroup does not exist, or a named process cannot be read.
    pub(super) fn resolve(target: &Target) -> Result<Self, Error> {
        if let Target::Pids { pids, .. } = target {
            let mut pids = pids.clone();
            pids.sort_unstable();
            let open = |pid| procfs::inspect(pid).map(Rc::new).map_err(|error| from_engines::process(pid, error));
            return pids.into_iter().map(open).collect::<Result<_, _>>().map(Self::Named);
        }
        let filter = filter::resolve(target, false)?;
        let hierarchies = filter.is_by_cgroup().then(|| Hierarchies::read().unwrap_or_default());
        Ok(Self::Matching { filter, hierarchies })
    }

    /// Returns the processes, by pid, and the number of those that cannot be opened. Named ones may have exited.
    pub(super) fn processes(&self) -> Result<(Vec<Rc<Process>>, UnmeasuredProcesses), Error> {
        let mut unmeasured = UnmeasuredProcesses::default();
        let mut opened = Vec::new();
        match self {
            Self::Named(processes) => opened.clone_from(processes),
            Self::Matching { filter, hierarchies } => {
                let failed = |error| Error::Failed(format!("cannot list the processes: {error}"));
                let own = Pid(std::process::id());
                let traits = |pid| procfs::traits(pid, hierarchies.as_ref()).unwrap_or_default();
                let all = procfs::all_processes().map_err(failed)?;
                for pid in all.into_iter().filter(|&pid| pid != own && filter.selects(pid, || traits(pid))) {
                    match procfs::inspect(pid) {
                        Ok(process) => opened.push(Rc::new(process)),
                        Err(error) => count(&mut unmeasured, &error),
                    }
                }
            }
        }
        Ok((opened, unmeasured))
    }

    /// Returns true if all processes have exited, and no other one can be selected.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Named(processes) => processes.iter().all(|process| process.has_exited()),
            Self::Matching { .. } => false,
        }
    }

    /// Counts a process if its references cannot be cleared. That is an error for a named one.
    pub(super) fn refuse(&self, pid: Pid, error: ProcessError, sum: &mut UnmeasuredProcesses) -> Result<(), Error> {
        match (self, &error) {
            (Self::Named(_), ProcessError::Exited(_)) | (Self::Matching { .. }, _) => {
                count(sum, &error);
                Ok(())
            }
            (Self::Named(_), _) => Err(from_engines::process(pid, error)),
        }
    }
}

/// Counts a process that cannot be measured, by its reason.
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
