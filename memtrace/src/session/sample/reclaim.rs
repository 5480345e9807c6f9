//! What the whole machine does to find memory, while it is traced.

use std::time::{Duration, Instant};

use super::memcgs::{GroupReader, Groups};
use crate::kernel::{Kernel, ReclaimCounters};
use crate::model::{EventClass, MachineReclaim, PerSecond, Pressure, PressureTime, Profile, VmCounters};
use crate::procfs;
use crate::session::config::Config;

const SECOND: Duration = Duration::from_secs(1);

/// What the kernel's counters were when tracing began, and have come to second by second.
#[derive(Debug)]
pub(in crate::session) struct ReclaimReader {
    before: VmCounters,
    pressure: Option<Pressure>,
    last: VmCounters,
    /// When the second ends that is counted now.
    due: Instant,
    seconds: PerSecond,
    groups: GroupReader,
}

impl ReclaimReader {
    /// Reads the counters. `None` where the search for memory is not followed.
    pub(in crate::session) fn begin(config: &Config) -> Option<Self> {
        config.follows(EventClass::counts_stalls).then(|| {
            let before = counters();
            let pressure = procfs::machine_pressure();
            Self {
                before,
                pressure,
                last: before,
                due: Instant::now() + SECOND,
                seconds: PerSecond::default(),
                groups: GroupReader::begin(),
            }
        })
    }

    /// Counts a second where one has passed. Is to be called a few times in each.
    pub(in crate::session) fn tick(&mut self, now: Instant, kernel: &Kernel) {
        let scanned = kernel.scanned_for_groups();
        self.groups.find(&scanned, now);
        if now < self.due {
            return;
        }
        self.groups.second(scanned);
        let counters = counters();
        self.seconds.add(&counters.since(&self.last));
        self.last = counters;
        // A second that was slept through is none in which nothing happened.
        self.due = (self.due + SECOND).max(now);
    }

    /// All that was done since the beginning, to be told of in a profile.
    pub(in crate::session) fn end(mut self, kernel: &Kernel) -> Ended {
        let now = Instant::now();
        let scanned = kernel.scanned_for_groups();
        self.groups.find(&scanned, now);
        let ReclaimCounters { efforts, threads } = kernel.reclaim_counters();
        let machine = MachineReclaim {
            efforts,
            threads,
            counters: counters().since(&self.before),
            seconds: self.seconds,
            pressure: self
                .pressure
                .zip(procfs::machine_pressure())
                .map(|(before, now)| PressureTime::between(&before, &now)),
            missing: kernel.missing().to_vec(),
        };
        Ended { machine, groups: self.groups.end(&scanned, now) }
    }
}

/// What was done while tracing.
#[derive(Debug)]
pub(in crate::session) struct Ended {
    machine: MachineReclaim,
    groups: Groups,
}

impl Ended {
    /// Writes it into the profile of waits.
    pub(in crate::session) fn tell(self, profile: &mut Profile) {
        profile.reclaim = Some(self.machine);
        for group in &mut profile.cgroups {
            let Some((path, memory)) = group.id.and_then(|id| self.groups.get(&id)) else { continue };
            group.path = Some(path.to_string_lossy().into_owned());
            group.memory = Some(*memory);
        }
    }
}

fn counters() -> VmCounters {
    procfs::vm_counters().inspect_err(|error| log::warn!("/proc/vmstat cannot be read: {error}")).unwrap_or_default()
}
