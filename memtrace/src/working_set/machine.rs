//! Reclaim of the machine during a measurement.

use std::time::{Duration, Instant};

use memtrace_host::procfs;
use memtrace_model::{PerSecond, VmCounters};

use super::limits::LimitReader;

const SECOND: Duration = Duration::from_secs(1);

/// Reader of the counters of the kernel and of cgroups with limits, once a second.
pub(super) struct MachineReader {
    pub(super) limits: LimitReader,
    first: VmCounters,
    last: VmCounters,
    next: Instant,
    seconds: PerSecond,
}

impl MachineReader {
    pub(super) fn start() -> Self {
        let counters = counters();
        let (next, seconds) = (Instant::now() + SECOND, PerSecond::default());
        Self { limits: LimitReader::start(), first: counters, last: counters, next, seconds }
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
        self.seconds.add(&counters.since(&self.last).of_machine());
        self.limits.end_second();
        self.last = counters;
        self.next += SECOND;
        if self.next < now {
            // A reading of all processes can take several seconds, so the next second begins now.
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
