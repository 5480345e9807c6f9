//! Processes that may be patched later, because they have not allocated enough yet, or cannot be patched now.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use memtrace_host::procfs;
use memtrace_model::{Bytes, ImageId, PageFaults, Pid};

use crate::trace::parts::lock_waits::FairRechecks;

/// Age at which a process is examined. Most processes of a build do not reach it, and are not worth a stop.
pub(super) const LEAST_AGE: Duration = Duration::from_secs(1);

/// A process with at least this number of minor faults a second counts as allocating.
const FAULTS_PER_SECOND: f64 = 256.0;

/// A process whose RSS grows by at least this number of bytes a second counts as allocating. Huge pages have few faults.
const GROWTH_PER_SECOND: f64 = (1 << 20) as f64;

/// Anonymous memory of a process that is sampled even if it allocates little now.
const LEAST_ANONYMOUS: Bytes = Bytes(64 << 20);

/// Longest interval of the measurements of a process that allocates nothing. The interval doubles up to this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

/// Maximum number of faults in a period of a process that counts as allocating nothing.
const IDLE_FAULTS: u64 = 16;

/// Maximum number of processes that are examined in a tick.
const MOST_DUE: usize = 100;

/// Processes that wait, each with the time of its next examination.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    times: FairRechecks,
    states: BTreeMap<ImageId, Candidate>,
}

/// Memory and page faults of a process at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    at: Instant,
    minor_faults: u64,
    rss: Bytes,
    anonymous: Bytes,
}

/// State of a process that waits.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    before: Activity,
    pause: Duration,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The process allocates enough to be sampled.
    Allocates,
    /// The process is examined again after this time.
    Waits(Duration),
}

impl Candidates {
    /// Examines a process at `at`.
    pub(super) fn set(&mut self, id: ImageId, at: Instant) {
        self.times.set(id, at, false);
    }

    /// Examines a process at `at`, after the others: its last examination was slow.
    pub(super) fn set_slow(&mut self, id: ImageId, at: Instant) {
        self.times.set(id, at, true);
    }

    /// Removes and returns the processes that are due at `now`, without those whose last examination was slow.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ImageId> {
        self.times.take_due(now, MOST_DUE)
    }

    /// Removes and returns a process that is due at `now`, and whose last examination was slow.
    pub(super) fn take_slow(&mut self, now: Instant) -> Option<ImageId> {
        self.times.take_slow(now)
    }

    pub(super) fn remove(&mut self, id: ImageId) {
        self.times.remove(id);
        self.states.remove(&id);
    }

    /// Compares the activity of a process with its activity at the last call.
    pub(super) fn judge(&mut self, id: ImageId, now: Activity) -> Verdict {
        if now.anonymous >= LEAST_ANONYMOUS {
            return Verdict::Allocates;
        }
        let Some(Candidate { before, pause }) = self.states.get(&id).copied() else {
            self.states.insert(id, Candidate { before: now, pause: LEAST_AGE });
            return Verdict::Waits(LEAST_AGE);
        };
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(f64::EPSILON);
        let faults = now.minor_faults.saturating_sub(before.minor_faults);
        let growth = now.rss.0.saturating_sub(before.rss.0);
        if faults as f64 / seconds >= FAULTS_PER_SECOND || growth as f64 / seconds >= GROWTH_PER_SECOND {
            return Verdict::Allocates;
        }
        let is_idle = faults <= IDLE_FAULTS && growth == 0;
        let pause = if is_idle { (pause * 2).min(LONGEST_PAUSE) } else { LEAST_AGE };
        self.states.insert(id, Candidate { before: now, pause });
        Verdict::Waits(pause)
    }
}

impl Activity {
    /// Measures a process; `None` if it has ended.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let PageFaults { minor, .. } = procfs::page_faults(pid)?;
        let memory = procfs::counted(pid).ok()?;
        Some(Self { at: Instant::now(), minor_faults: minor, rss: memory.rss, anonymous: memory.anonymous })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ImageId = ImageId { pid: Pid(7), ordinal: 0 };
    const MIB: u64 = 1 << 20;

    /// Process with a measurement at any time.
    struct Process {
        start: Instant,
        candidates: Candidates,
    }

    impl Process {
        fn new() -> Self {
            Self { start: Instant::now(), candidates: Candidates::default() }
        }

        fn judge(&mut self, second: u64, minor_faults: u64, rss: u64) -> Verdict {
            let at = self.start + Duration::from_secs(second);
            let now = Activity { at, minor_faults, rss: Bytes(rss), anonymous: Bytes(rss / 2) };
            self.candidates.judge(ID, now)
        }
    }

    const WAITS: fn(u64) -> Verdict = |seconds| Verdict::Waits(Duration::from_secs(seconds));

    #[test]
    fn faults_or_growth_show_that_a_process_allocates() {
        let mut process = Process::new();
        assert_eq!(process.judge(0, 1_000_000, 100 * MIB), WAITS(1), "one measurement shows no rate");
        assert_eq!(process.judge(2, 1_000_511, 100 * MIB), WAITS(1));
        assert_eq!(process.judge(4, 1_001_023, 100 * MIB), Verdict::Allocates);
        let mut process = Process::new();
        process.judge(0, 0, 50 * MIB);
        assert_eq!(process.judge(1, 1, 51 * MIB - 1), WAITS(1));
        assert_eq!(process.judge(2, 1, 52 * MIB - 1), Verdict::Allocates, "huge pages have few faults");
    }

    #[test]
    fn large_process_needs_no_activity() {
        assert_eq!(Process::new().judge(0, 0, 127 * MIB), WAITS(1));
        assert_eq!(Process::new().judge(0, 0, 128 * MIB), Verdict::Allocates);
    }

    #[test]
    fn idle_process_is_measured_less_often() {
        let mut process = Process::new();
        let mut second = 0;
        for expected in [1, 2, 4, 8, 16, 32, 32] {
            assert_eq!(process.judge(second, 0, MIB), WAITS(expected));
            second += expected;
        }
        assert_eq!(process.judge(second, 17, MIB), WAITS(1));
    }

    #[test]
    fn removed_process_is_measured_from_its_start() {
        let mut process = Process::new();
        process.judge(0, 0, MIB);
        let now = process.start;
        process.candidates.set(ID, now);
        process.candidates.remove(ID);
        assert!(process.candidates.take_due(now).is_empty());
        assert_eq!(process.judge(1, 1_000_000, MIB), WAITS(1));
        process.candidates.set(ID, now);
        assert_eq!(process.candidates.take_due(now), [ID]);
    }

    #[test]
    fn this_process_is_measured() {
        let now = Activity::of(Pid(std::process::id())).unwrap();
        assert!(now.rss >= now.anonymous && now.anonymous.0 > 0);
        assert_eq!(Activity::of(Pid(u32::MAX)), None);
    }
}
