//! Reclaim of the whole machine while it is traced.

use std::time::{Duration, Instant};

use memtrace_host::kernel::{Kernel, ReclaimCounters};
use memtrace_host::procfs;
use memtrace_model::{EventClass, MachineReclaim, PerSecond, Pressure, PressureTime, VmCounters};

use super::memcgs::{MemcgReader, Memcgs};
use crate::trace::config::Config;

const SECOND: Duration = Duration::from_secs(1);

/// Reads the kernel's reclaim counters during a run.
#[derive(Debug)]
pub(in crate::trace) struct ReclaimReader {
    first: VmCounters,
    pressure: Option<Pressure>,
    last: VmCounters,
    /// End of the current second.
    second_end: Instant,
    seconds: PerSecond,
    memcgs: MemcgReader,
}

/// Reclaim during a run.
#[derive(Debug)]
pub(in crate::trace) struct MeasuredReclaim {
    pub(in crate::trace) machine: MachineReclaim,
    pub(in crate::trace) memcgs: Memcgs,
}

impl ReclaimReader {
    /// Reads the counters. Returns `None` if reclaim events are not traced.
    pub(in crate::trace) fn start(config: &Config) -> Option<Self> {
        config.follows(EventClass::counts_stalls).then(|| {
            let first = counters();
            let pressure = procfs::machine_pressure();
            Self {
                first,
                pressure,
                last: first,
                second_end: Instant::now() + SECOND,
                seconds: PerSecond::default(),
                memcgs: MemcgReader::start(),
            }
        })
    }

    /// Ends the current second if it is over. Call this a few times a second.
    pub(in crate::trace) fn tick(&mut self, now: Instant, kernel: &Kernel) {
        let scanned = kernel.scanned_by_memcg();
        self.memcgs.add_new(&scanned, now);
        if now < self.second_end {
            return;
        }
        self.memcgs.end_second(scanned);
        let counters = counters();
        self.seconds.add(&counters.since(&self.last));
        self.last = counters;
        // Seconds that memtrace slept through are not seconds without reclaim: skip them.
        self.second_end = (self.second_end + SECOND).max(now);
    }

    /// Returns the reclaim since the start.
    pub(in crate::trace) fn finish(mut self, kernel: &Kernel) -> MeasuredReclaim {
        let now = Instant::now();
        let scanned = kernel.scanned_by_memcg();
        self.memcgs.add_new(&scanned, now);
        let ReclaimCounters { efforts, threads } = kernel.reclaim_counters();
        let machine = MachineReclaim {
            efforts,
            threads,
            counters: counters().since(&self.first),
            seconds: self.seconds,
            pressure: self
                .pressure
                .zip(procfs::machine_pressure())
                .map(|(first, now)| PressureTime::between(&first, &now)),
            missing: kernel.missing_tracepoints().iter().map(ToString::to_string).collect(),
        };
        MeasuredReclaim { machine, memcgs: self.memcgs.finish(&scanned, now) }
    }
}

fn counters() -> VmCounters {
    procfs::vm_counters().inspect_err(|error| log::warn!("cannot read the VM counters: {error}")).unwrap_or_default()
}
