//! Hot and cold memory of a trace: the pages that its processes touch before the report is written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_history::reconcile::residency;
use memtrace_host::procfs::{ClearedPages, PageTracker, ProcessError};
use memtrace_model::{EventClass, Pid, Snapshots, TouchWindow, TouchedProcesses, WorkingSetMethod, format};

use crate::run_kit::error::Error;
use crate::run_kit::page_tracker;

/// Meter of touched pages.
pub(super) struct TouchMeter {
    tracker: PageTracker,
    method: WorkingSetMethod,
    window: Duration,
}

/// Processes with pages that were marked as not touched.
pub(super) struct MarkedProcesses {
    processes: Vec<(Pid, ClearedPages)>,
    /// Time halfway between the start and the end of the marking of the pages.
    at: Instant,
}

/// Result of a measurement.
pub(super) struct Touches {
    pub(super) processes: Arc<TouchedProcesses>,
    pub(super) window: TouchWindow,
}

impl TouchMeter {
    /// Chooses a tracker of single pages.
    ///
    /// # Errors
    ///
    /// The kernel has no tracker of single pages, or permission is missing.
    pub(super) fn open(window: Duration) -> Result<Self, Error> {
        let (tracker, method) = page_tracker::any()?;
        Ok(Self { tracker, method, window })
    }

    pub(super) const fn window(&self) -> Duration {
        self.window
    }

    /// Describes the measurement that is about to start, for the user.
    pub(super) fn description(&self) -> String {
        let (name, verb) = (self.method.name(), self.method.verb());
        format!(
            "watching for {} which pages are {verb} (Ctrl-C shortens it); method {name}: {}",
            format::short(self.window),
            self.method.side_effects()
        )
    }

    /// Marks the pages of processes as not touched.
    pub(super) fn clear(&self, pids: &BTreeSet<Pid>) -> MarkedProcesses {
        let start = Instant::now();
        let processes = pids.iter().filter_map(|&pid| Some((pid, known(pid, self.tracker.clear(pid))?))).collect();
        MarkedProcesses { processes, at: start + start.elapsed() / 2 }
    }

    /// Reads the pages that were touched since they were marked; `None` if all processes have
    /// ended.
    pub(super) fn read(&self, marked: &MarkedProcesses) -> Option<Touches> {
        let start = Instant::now();
        let read =
            |(pid, cleared): &(Pid, ClearedPages)| Some((*pid, known(*pid, self.tracker.read(*pid, cleared))?.pages));
        let processes = TouchedProcesses(marked.processes.iter().filter_map(read).collect());
        if processes.0.is_empty() {
            return None;
        }
        let processes = Arc::new(processes);
        let at = start + start.elapsed() / 2;
        let window = TouchWindow { method: self.method, duration: at.saturating_duration_since(marked.at) };
        Some(Touches { processes, window })
    }
}

/// Returns the result; `None` if the process has exited or cannot be read.
fn known<T>(pid: Pid, result: Result<T, ProcessError>) -> Option<T> {
    match result {
        Ok(result) => Some(result),
        Err(ProcessError::Exited(_)) => None,
        Err(error) => {
            log::warn!("the report has no hot and cold bytes of process {pid}: {error}");
            None
        }
    }
}

impl Touches {
    /// Adds hot and cold bytes to the totals of mappings.
    pub(super) fn add_to_mappings(&self, snapshots: &mut Snapshots) {
        let Some(snapshot) = snapshots.0.get_mut(&EventClass::Map) else { return };
        for (id, usage) in snapshot.images.iter_mut().filter(|(_, usage)| usage.ended.is_none()) {
            if let Some(pages) = self.processes.0.get(&id.pid) {
                residency::add_touches(usage, pages);
            }
        }
    }
}
