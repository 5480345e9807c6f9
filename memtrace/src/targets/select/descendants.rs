//! Processes that the targets had started before memtrace traced their forks.

use memtrace_host::kernel::Scope;
use memtrace_host::procfs::{self, Process, ProcessError};
use memtrace_model::Pid;

use super::config::ProbeSite;
use super::coverage_gaps::coverage_gaps;
use super::go_programs;
use super::probes::AllocatorProbes;
use crate::run_kit::error::Error;
use crate::targets::track::ProcessTracker;

/// Descendants of the targets.
#[derive(Default)]
pub(super) struct Descendants(Vec<Descendant>);

/// A process that a target has started.
pub(super) enum Descendant {
    Inspected(Process),
    /// A process that cannot be read now: it holds a lock, or permission is missing.
    Unread(Pid),
}

impl Descendant {
    pub(super) const fn pid(&self) -> Pid {
        match self {
            Self::Inspected(process) => process.pid,
            Self::Unread(pid) => *pid,
        }
    }

    pub(super) fn has_exited(&self) -> bool {
        match self {
            Self::Inspected(process) => process.has_exited(),
            Self::Unread(pid) => procfs::comm(*pid).is_none(),
        }
    }
}

/// Descendants that were not known before.
#[derive(Default)]
pub(super) struct NewDescendants {
    /// Number of new descendants that are traced.
    pub(super) count: usize,
    pub(super) probes: Vec<AllocatorProbes>,
    pub(super) notes: Vec<String>,
}

impl Descendants {
    /// Adds the running descendants of `roots` that are not known yet. `follow` lets the BPF programs follow a process, and
    /// returns true if the process runs and was not followed before.
    pub(super) fn find(
        &mut self,
        roots: &[Pid],
        probe_site: Option<ProbeSite>,
        tracker: &mut ProcessTracker,
        mut follow: impl FnMut(&Descendant) -> Result<bool, Error>,
    ) -> Result<NewDescendants, Error> {
        let failed = |error| Error::Failed(format!("cannot list the running processes: {error}"));
        let mut new = NewDescendants::default();
        // Forget processes that have exited: their pids can be reused.
        self.0.retain(|descendant| !descendant.has_exited());
        for pid in procfs::descendants(roots).map_err(failed)? {
            if self.pids().any(|known| known == pid) {
                continue;
            }
            let descendant = match procfs::inspect(pid) {
                Ok(process) => Descendant::Inspected(process),
                // Until the process can be read, it is listed as a process that is not traced.
                Err(ProcessError::Locked(_) | ProcessError::Permission { .. }) => Descendant::Unread(pid),
                Err(ProcessError::NoSuchProcess(_) | ProcessError::Exited(_)) => continue,
                Err(error) => {
                    new.notes.push(format!("process {pid}, which a target has started, is not traced: {error}"));
                    continue;
                }
            };
            if !follow(&descendant)? {
                continue;
            }
            let found = tracker.track_running(pid);
            new.count += 1;
            let survey = tracker.survey(pid);
            new.notes.extend(coverage_gaps(pid, &survey, go_programs::runs(pid, tracker)));
            let probes = |allocator| {
                let id = tracker.allocators.id(&allocator);
                AllocatorProbes::new(pid, Scope::AllProcesses, &allocator, id, probe_site?)
            };
            new.probes.extend(found.into_iter().filter_map(probes));
            self.0.push(descendant);
        }
        Ok(new)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Descendant> {
        self.0.iter()
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.0.iter().map(Descendant::pid)
    }
}
