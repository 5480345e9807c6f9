//! What the whole machine does to find memory, while it is traced.

use std::time::{Duration, Instant};

use super::config::Config;
use crate::kernel::{Kernel, ReclaimCounters};
use crate::model::{EventClass, MachineReclaim, Pressure, PressureTime, Seconds, VmCounters};
use crate::target;

const SECOND: Duration = Duration::from_secs(1);

/// What the kernel's counters were when tracing began, and have come to second by second.
#[derive(Debug)]
pub(super) struct ReclaimReader {
    before: VmCounters,
    pressure: Option<Pressure>,
    last: VmCounters,
    /// When the second ends that is counted now.
    due: Instant,
    seconds: Seconds,
}

impl ReclaimReader {
    /// Reads the counters. `None` where the search for memory is not followed.
    pub(super) fn begin(config: &Config) -> Option<Self> {
        config.follows(EventClass::Reclaim).then(|| {
            let before = counters();
            let pressure = target::machine_pressure();
            Self { before, pressure, last: before, due: Instant::now() + SECOND, seconds: Seconds::default() }
        })
    }

    /// Counts a second where one has passed. Is to be called a few times in each.
    pub(super) fn tick(&mut self, now: Instant) {
        if now < self.due {
            return;
        }
        let counters = counters();
        self.seconds.add(&counters.since(&self.last));
        self.last = counters;
        // A second that was slept through is none in which nothing happened.
        self.due = (self.due + SECOND).max(now);
    }

    /// All that was done since the beginning.
    pub(super) fn end(self, kernel: &Kernel) -> MachineReclaim {
        let ReclaimCounters { efforts, threads } = kernel.reclaim_counters();
        MachineReclaim {
            efforts,
            threads,
            counters: counters().since(&self.before),
            seconds: self.seconds,
            pressure: self
                .pressure
                .zip(target::machine_pressure())
                .map(|(before, now)| PressureTime::between(&before, &now)),
            missing: kernel.missing().to_vec(),
        }
    }
}

fn counters() -> VmCounters {
    target::vm_counters().inspect_err(|error| log::warn!("/proc/vmstat cannot be read: {error}")).unwrap_or_default()
}
