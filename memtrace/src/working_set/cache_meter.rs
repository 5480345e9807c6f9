//! Use of the last-level cache by the measured processes.

use memtrace_host::pmu::{CacheCounters, PmuError};
use memtrace_model::{CacheUse, Pid};

use crate::run_kit::observer::Observer;

/// Meter of the use of the last-level cache, if the machine has counters for it.
#[derive(Default)]
pub(super) struct CacheMeter {
    counters: Option<CacheCounters>,
    has_failed: bool,
}

impl CacheMeter {
    /// Starts to count for `pids`. If this fails, the user gets a note once.
    pub(super) fn start(&mut self, pids: &[Pid], observer: &mut dyn Observer) {
        if self.has_failed {
            return;
        }
        self.counters = CacheCounters::start(pids).map_err(|error| self.fail(&error, observer)).ok();
    }

    /// Returns the use of the cache since [`Self::start`]; `None` if it is not known.
    pub(super) fn read(&mut self, observer: &mut dyn Observer) -> Option<CacheUse> {
        let read = self.counters.as_mut()?.read();
        read.unwrap_or_else(|error| {
            self.fail(&error.into(), observer);
            None
        })
    }

    fn fail(&mut self, error: &PmuError, observer: &mut dyn Observer) {
        self.has_failed = true;
        self.counters = None;
        observer.note(&format!("the use of the last-level cache is not measured: {error}"));
    }
}
