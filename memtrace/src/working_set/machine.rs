//! Reclaim of the machine during a measurement.

use std::time::{Duration, Instant};

use memtrace_host::procfs;
use memtrace_model::{PerSecond, VmCounters};

const SECOND: Duration = Duration::from_secs(1);

/// Reader of the kernel's counters, once a second.
pub(super) struct MachineReader {
    first: VmCounters,
    last: VmCounters,
    next: Instant,
    seconds: PerSecond,
}

impl MachineReader {
    pub(super) fn start() -> Self {
        let counters = counters();
        Self { first: counters, last: counters, next: Instant::now() + SECOND, seconds: PerSecond::default() }
    }

    /// Returns the end of the current second.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// Ends the current second if it is over. Several seconds without a call count as one.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        let counters = counters();
        self.seconds.add(&counters.since(&self.last));
        self.last = counters;
        self.next += SECOND;
        if self.next < now {
            // A reading of all processes can take several seconds.
            self.next = now + SECOND;
        }
    }

    /// Returns the seconds so far, and the number of kswapd runs in them.
    pub(super) const fn result(&self) -> (PerSecond, u64) {
        (self.seconds, self.last.since(&self.first).kswapd_runs)
    }
}

/// Returns the counters; all are zero if they cannot be read.
fn counters() -> VmCounters {
    procfs::vm_counters().unwrap_or_default()
}
