//! Processes with cleared references.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memtrace_host::procfs::{self, CountedFrames, FrameCounter, Freezer, PauseError, Process, ProcessError, Tmpfs};
use memtrace_model::{Bytes, Pid, ProcessWorkingSet, UnmeasuredProcesses, WorkingSets};

use super::method::{Cleared, Method, Prepared, Reading};
use super::selection::{Selection, count};
use crate::run_kit::error::Error;

/// A process with cleared references.
struct ClearedProcess {
    process: Rc<Process>,
    tmpfs: Tmpfs,
    cleared: Cleared,
    during: Range<Duration>,
    /// Freezer that pauses the process while it is read, if the user has requested this.
    freezer: Option<Freezer>,
}

/// Processes with cleared references. The references were cleared process by process.
pub(super) struct ClearedProcesses<'a> {
    method: &'a Method,
    prepared: Prepared,
    start: Instant,
    huge_page: Bytes,
    processes: Vec<ClearedProcess>,
    unmeasured: UnmeasuredProcesses,
}

impl<'a> ClearedProcesses<'a> {
    /// Clears the references of all selected processes. `wait`: time until the first reading.
    /// `start`: origin of times.
    ///
    /// # Errors
    ///
    /// The references of a named process cannot be cleared.
    pub(super) fn clear(
        method: &'a Method,
        selection: &Selection,
        pause: bool,
        wait: Duration,
        start: Instant,
    ) -> Result<Self, Error> {
        let (opened, mut unmeasured) = selection.processes()?;
        let opened: Vec<_> = opened.into_iter().map(|process| (Tmpfs::of(process.pid), process)).collect();
        let own: Vec<Pid> = opened.iter().map(|(_, process)| process.pid).collect();
        let prepared = method.prepare(&own, wait)?;
        // All freezers are made before the first process is frozen.
        let freezer = |process: &Process| match Freezer::of(process.pid, &own) {
            Ok(freezer) => Ok(Some(freezer)),
            Err(PauseError::Exited(_)) => Ok(None),
            Err(error) => Err(cannot_pause(&error)),
        };
        let freezers: Vec<_> = match pause {
            true => opened.iter().map(|(_, process)| freezer(process)).collect::<Result<_, _>>()?,
            false => opened.iter().map(|_| None).collect(),
        };
        let mut processes = Vec::new();
        for ((tmpfs, process), freezer) in opened.into_iter().zip(freezers) {
            let frozen = freezer.as_ref().map(Freezer::freeze).transpose().map_err(|error| cannot_pause(&error))?;
            let begin = start.elapsed();
            // If the process has exited, the pid may belong to another process.
            let cleared = match process.has_exited() {
                true => Err(ProcessError::Exited(process.pid)),
                false => method.clear(&prepared, process.pid),
            };
            let during = begin..start.elapsed();
            drop(frozen);
            match cleared {
                Ok(cleared) => processes.push(ClearedProcess { process, tmpfs, cleared, during, freezer }),
                Err(error) => selection.refuse(process.pid, error, &mut unmeasured)?,
            }
        }
        Ok(Self { method, prepared, start, huge_page: procfs::huge_page_size(), processes, unmeasured })
    }

    /// Returns the processes to read.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.processes.iter().map(|cleared| cleared.process.pid).collect()
    }

    /// Returns true if there is no process to read.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns the numbers of processes that could not be measured so far.
    pub(super) const fn unmeasured(&self) -> UnmeasuredProcesses {
        self.unmeasured
    }

    /// Reads the references of the processes that still run. `requested`: requested time from
    /// clearing to reading. `fit`: true to count the pages of a single process by their frames, too.
    pub(super) fn read(&mut self, requested: Duration, fit: bool) -> WorkingSets {
        let mut read = Vec::new();
        let Self { method, prepared, start, huge_page, processes, unmeasured } = self;
        let mut frames = (fit || processes.len() > 1).then(FrameCounter::start);
        processes.retain(|cleared| match cleared.read(method, prepared, *start, *huge_page, frames.as_mut()) {
            Ok(process) => {
                read.push(process);
                true
            }
            Err(error) => {
                count(unmeasured, &error);
                false
            }
        });
        let counted = frames.map(FrameCounter::finish);
        if let Some(CountedFrames { failed, .. }) = &counted {
            failed.iter().for_each(|(_, error)| count(unmeasured, error));
            let has_failed = |pid: Pid| failed.iter().any(|(failed, _)| *failed == pid);
            read.retain(|process: &ProcessWorkingSet| !has_failed(process.pid));
            processes.retain(|cleared| !has_failed(cleared.process.pid));
        }
        WorkingSets {
            method: method.kind(),
            requested,
            processes: read,
            frames_time: counted.as_ref().map(|counted| counted.time).unwrap_or_default(),
            distinct: counted.map(|counted| counted.memory),
            unmeasured: *unmeasured,
            lost_faults: method.lost_faults_since(prepared),
            ..WorkingSets::default()
        }
    }
}

impl ClearedProcess {
    /// Reads the references. Adds the process to `frames`.
    fn read(
        &self,
        method: &Method,
        prepared: &Prepared,
        start: Instant,
        huge_page: Bytes,
        frames: Option<&mut FrameCounter>,
    ) -> Result<ProcessWorkingSet, ProcessError> {
        let pid = self.process.pid;
        let frozen = self.freezer.as_ref().map(Freezer::freeze).transpose();
        let frozen = frozen.unwrap_or_else(|error| {
            log::warn!("process {pid} was not frozen while it was read, so EST is less exact: {error}");
            None
        });
        let begin = start.elapsed();
        let reading = method.read(prepared, pid, &self.cleared, &self.tmpfs, huge_page);
        let end = start.elapsed();
        let paused = frozen.is_some();
        drop(frozen);
        if self.process.has_exited() {
            return Err(ProcessError::Exited(pid));
        }
        let reading = reading?;
        let kinds = reading.kinds();
        let Reading { mappings, touched, hugetlb, locked, references_end } = reading;
        let references_end = references_end.saturating_duration_since(start);
        if let Some(frames) = frames {
            frames.add(&self.process, mappings, touched, end.saturating_sub(begin));
        }
        Ok(ProcessWorkingSet {
            pid,
            comm: self.process.comm.clone(),
            cleared: self.during.clone(),
            read: begin..references_end,
            kinds,
            hugetlb,
            locked,
            paused,
            sizes_time: end.saturating_sub(references_end),
        })
    }
}

/// Returns the error for a process that cannot be paused.
fn cannot_pause(error: &PauseError) -> Error {
    let remedy = match error {
        PauseError::Exited(_) => "choose a process that runs",
        PauseError::NotMounted => "mount it, or measure without --pause",
        PauseError::Root(_) | PauseError::Shared { .. } => {
            "start the process in a group of its own, as with `systemd-run --scope`, or measure without --pause"
        }
        PauseError::Frozen(_) => "wait until it is thawed, or measure without --pause",
        PauseError::Late(_) | PauseError::Failed { .. } => "measure without --pause",
    };
    Error::CannotMeasure { message: error.to_string(), remedy: remedy.to_owned() }
}
