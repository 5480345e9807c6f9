//! Reclaim on the whole machine, and in memcgs, during a trace.

mod memcgs;

use std::time::{Duration, Instant};

use memtrace_host::kernel::ReclaimCounters;
use memtrace_host::procfs;
use memtrace_model::{EventClass, MachineReclaim, PerSecond, Pressure, PressureTime, VmCounters};

use self::memcgs::MemcgReader;
use crate::run_kit::observer::Observer;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::facts::{Facts, MeasuredReclaim};
use crate::trace::part::Part;

const SECOND: Duration = Duration::from_secs(1);

/// Reads the kernel's reclaim counters during a run.
#[derive(Debug)]
pub(super) struct ReclaimReader {
    first: VmCounters,
    pressure: Option<Pressure>,
    last: VmCounters,
    /// End of the current second.
    second_end: Instant,
    seconds: PerSecond,
    memcgs: MemcgReader,
    /// Result at the end of the trace; `None` until then.
    measured: Option<MeasuredReclaim>,
}

impl ReclaimReader {
    /// Reads the counters. Returns `None` if reclaim events are not traced.
    pub(super) fn start(config: &Config) -> Option<Self> {
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
                measured: None,
            }
        })
    }
}

impl Part for ReclaimReader {
    /// Ends the current second if it is over.
    fn tick(&mut self, context: &mut Context, _: &mut dyn Observer) {
        let now = Instant::now();
        let scanned = context.kernel.scanned_by_memcg();
        self.memcgs.add_new(&scanned, now);
        if now < self.second_end {
            return;
        }
        self.memcgs.end_second(scanned);
        let counters = counters();
        self.seconds.add(&counters.since(&self.last));
        self.last = counters;
        // Skip seconds that memtrace slept through. They are not seconds without reclaim.
        self.second_end = (self.second_end + SECOND).max(now);
    }

    fn stop(&mut self, context: &mut Context) {
        let kernel = &context.kernel;
        let now = Instant::now();
        let scanned = kernel.scanned_by_memcg();
        self.memcgs.add_new(&scanned, now);
        let ReclaimCounters { efforts, threads } = kernel.reclaim_counters();
        let machine = MachineReclaim {
            efforts,
            threads,
            counters: counters().since(&self.first),
            seconds: std::mem::take(&mut self.seconds),
            pressure: self
                .pressure
                .zip(procfs::machine_pressure())
                .map(|(first, now)| PressureTime::between(&first, &now)),
            missing: kernel.missing_tracepoints().iter().map(ToString::to_string).collect(),
        };
        self.measured = Some(MeasuredReclaim { machine, memcgs: self.memcgs.finish(&scanned, now) });
    }

    fn finish(self: Box<Self>, _: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        facts.reclaim = self.measured;
    }
}

fn counters() -> VmCounters {
    procfs::vm_counters().inspect_err(|error| log::warn!("cannot read the VM counters: {error}")).unwrap_or_default()
}
