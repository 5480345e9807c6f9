//! Subjects of an interval, with their values.

use std::fmt;

use memtrace_model::{
    CgroupId, CounterSource, MachineUsage, Pid, ProcessInterval, ProcessValues, ThreadIdentity, ThreadInterval,
    ThreadUsage, ThreadsInterval, plain,
};

use super::subject::Subject;

/// Values of a cgroup in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupObservation {
    /// The cgroup.
    pub id: CgroupId,
    /// Path of the cgroup.
    pub path: String,
    /// Charged memory at the end of the interval in bytes, if known.
    pub memory: Option<u64>,
    /// Time within the interval when at least one task waited for memory (PSI, `some`), in nanoseconds, if known.
    pub pressure: Option<u64>,
}

/// Subject of an interval with its values. `Display` describes it for the user.
#[derive(Clone, Copy, Debug)]
pub(super) enum Observed<'a> {
    Process(&'a ProcessInterval),
    Thread(&'a ProcessInterval, &'a ThreadInterval),
    Machine(&'a MachineUsage),
    Cgroup(&'a CgroupObservation),
}

/// Identity of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SubjectKey {
    Process(Pid, u64),
    Thread(ThreadIdentity),
    Machine,
    Cgroup(CgroupId),
}

/// Returns all subjects of a kind.
pub(super) fn subjects<'a>(
    subject: Subject,
    interval: &'a ThreadsInterval,
    cgroups: &'a [CgroupObservation],
) -> Vec<Observed<'a>> {
    let processes = interval.processes.iter();
    match subject {
        Subject::Process => processes.map(Observed::Process).collect(),
        Subject::Thread => processes
            .flat_map(|process| process.threads.iter().map(move |thread| (process, thread)))
            .filter(|(_, thread)| !thread.has_ended())
            .map(|(process, thread)| Observed::Thread(process, thread))
            .collect(),
        Subject::Machine => vec![Observed::Machine(&interval.machine)],
        Subject::Cgroup => cgroups.iter().map(Observed::Cgroup).collect(),
    }
}

impl<'a> Observed<'a> {
    pub(super) const fn key(self) -> SubjectKey {
        match self {
            Self::Process(process) => SubjectKey::Process(process.pid, process.start_ns),
            Self::Thread(_, thread) => SubjectKey::Thread(thread.thread),
            Self::Machine(_) => SubjectKey::Machine,
            Self::Cgroup(cgroup) => SubjectKey::Cgroup(cgroup.id),
        }
    }

    /// Returns the process of a process or thread.
    pub(super) const fn process(self) -> Option<&'a ProcessInterval> {
        match self {
            Self::Process(process) | Self::Thread(process, _) => Some(process),
            Self::Machine(_) | Self::Cgroup(_) => None,
        }
    }

    /// Returns the counters of a process or thread.
    pub(super) const fn usage(self) -> Option<&'a ThreadUsage> {
        match self {
            Self::Process(process) => Some(&process.usage),
            Self::Thread(_, thread) => Some(&thread.usage),
            Self::Machine(_) | Self::Cgroup(_) => None,
        }
    }

    /// Returns the counters of a process or thread, if its heap counters have a source.
    pub(super) fn heap(self) -> Option<&'a ThreadUsage> {
        let has_source = self.process()?.source.source != CounterSource::None;
        self.usage().filter(|_| has_source)
    }

    pub(super) const fn process_values(self) -> Option<&'a ProcessValues> {
        match self {
            Self::Process(process) => Some(&process.values),
            _ => None,
        }
    }

    pub(super) const fn machine(self) -> Option<&'a MachineUsage> {
        match self {
            Self::Machine(machine) => Some(machine),
            _ => None,
        }
    }

    pub(super) const fn cgroup(self) -> Option<&'a CgroupObservation> {
        match self {
            Self::Cgroup(cgroup) => Some(cgroup),
            _ => None,
        }
    }
}

impl fmt::Display for Observed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(out, "process {} ({})", process.pid, process.comm),
            Self::Thread(_, ThreadInterval { thread, comm, .. }) => {
                write!(out, "thread {}/{} ({comm})", thread.pid, thread.tid.0)
            }
            Self::Machine(_) => out.write_str("the machine"),
            Self::Cgroup(cgroup) => write!(out, "cgroup {}", plain(&cgroup.path)),
        }
    }
}
