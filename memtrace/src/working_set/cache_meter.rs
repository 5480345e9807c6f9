//! Use of the last-level cache by the measured processes.

use memtrace_host::pmu::{CacheCounters, PmuError};
use memtrace_model::{CacheUse, Pid};

use crate::run_kit::observer::Observer;

/// Measures the use of the cache, if that is possible.
#[derive(Default)]
pub(super) struct CacheMeter {
    counters: Option<CacheCounters>,
    has_failed: bool,
}

impl CacheMeter {
    /// Starts to count for these processes. If that fails, the user is informed once.
    pub(super) fn start(&mut self, pids: &[Pid], observer: &mut dyn Observer) {
        if self.has_failed {
            return;
        }
        self.counters = CacheCounters::start(pids).map_err(|error| self.fail(&error, observer)).ok();
    }

    /// Returns the use since then; `None` if it is not known.
    pub(super) fn read(&mut self, observer: &mut dyn Observer) -> Option<CacheUse> {
        let read = self.counters.as_mut()?.read();
        read.unwrap_or_else(|error| {
            self.fail(&error.into(), observer);
            None
        })
    }

    fn fail(&mut self, error: &PmuError, observer: &mut dyn Observer) {
        self.has_failed = true;
        observer.note(&format!("the use of the last-level cache is not measured: {error}"));
    }
}
