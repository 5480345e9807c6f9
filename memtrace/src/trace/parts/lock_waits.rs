//! Limits of the time that the event loop waits for processes which hold locks of their memory.
//!
//! A process can hold such a lock whenever it is read, and each of these readings takes some tens of milliseconds
//! (`memtrace_host::procfs`). With hundreds of such processes, the event loop would do nothing else. So the readings of a part
//! end as soon as they have waited for too long, and go on later where they have ended.

use std::time::{Duration, Instant};

use memtrace_model::{ImageId, Pid, format};

use super::rechecks::Rechecks;

/// Readings that take less time than this do not count. Nearly all readings take some microseconds.
const SHORT: Duration = Duration::from_millis(1);

/// Time that readings may take before a pause. A single reading can exceed it.
const MOST: Duration = Duration::from_millis(20);

/// Readings that wait take at most one part in this number of the time, unless a single one is longer than a quarter of
/// [`LONGEST_PAUSE`].
const WAITED_ONE_IN: u32 = 5;

/// Maximum of a pause. No process of the part is read meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Time that readings may take at the end of the trace.
const MOST_AT_END: Duration = Duration::from_secs(5);

/// Time that the readings of the children of a process may take when it ends.
const MOST_AT_END_OF_PROCESS: Duration = Duration::from_millis(200);

/// Time that the readings of a part have waited.
#[derive(Debug)]
pub(super) struct LockWaits {
    /// Time since the last pause.
    waited: Duration,
    /// End of the last pause.
    pause_end: Instant,
}

impl LockWaits {
    pub(super) fn new() -> Self {
        Self { waited: Duration::ZERO, pause_end: Instant::now() }
    }

    /// Returns the time of the begin of a reading; `None` if the part must not read processes now.
    pub(super) fn begin(&self) -> Option<Instant> {
        let now = Instant::now();
        (now >= self.pause_end).then_some(now)
    }

    /// Adds a reading that ends now. Returns true if it was slow.
    pub(super) fn end(&mut self, begin: Instant) -> bool {
        let now = Instant::now();
        self.add(now.saturating_duration_since(begin), now)
    }

    /// Adds a reading that took `time` and ended at `now`. Returns true if it was slow.
    pub(super) fn add(&mut self, time: Duration, now: Instant) -> bool {
        if time >= SHORT {
            self.waited += time;
        }
        if self.waited >= MOST {
            self.pause_end = now + (self.waited * (WAITED_ONE_IN - 1)).min(LONGEST_PAUSE);
            self.waited = Duration::ZERO;
        }
        time >= MOST
    }
}

/// Time that readings without a later chance may still wait: at the end of the trace, or of a process.
#[derive(Debug)]
pub(super) struct LastLockWaits {
    left: Duration,
}

impl LastLockWaits {
    /// Returns the time at the end of the trace.
    pub(super) const fn new() -> Self {
        Self { left: MOST_AT_END }
    }

    /// Returns the time at the end of a process.
    pub(super) const fn of_process() -> Self {
        Self { left: MOST_AT_END_OF_PROCESS }
    }

    /// Calls `read` if there is time left.
    pub(super) fn read<T>(&mut self, read: impl FnOnce() -> T) -> Option<T> {
        if self.left.is_zero() {
            return None;
        }
        let begin = Instant::now();
        let result = read();
        self.add(begin.elapsed());
        Some(result)
    }

    fn add(&mut self, time: Duration) {
        if time >= SHORT {
            self.left = self.left.saturating_sub(time);
        }
    }
}

/// Maximum number of processes that a note names.
const MAX_NAMED: usize = 8;

/// Returns a note on processes that were not read because other processes used up the time; `None` without such processes.
/// `consequence`: what is missing or not known, as a clause.
pub(super) fn note_of_unread(consequence: &str, unread: &[Pid]) -> Option<String> {
    let pids = format::limited_list(unread.iter().map(Pid::to_string), MAX_NAMED);
    (!unread.is_empty()).then(|| format!("other processes held locks of their memory, so {consequence}: {pids}"))
}

/// Times of the next readings. Processes whose last reading was slow delay no other process.
#[derive(Debug, Default)]
pub(super) struct FairRechecks {
    prompt: Rechecks,
    slow: Rechecks,
}

impl FairRechecks {
    /// Adds an image, or changes its time. `is_slow`: true if its last reading was slow.
    pub(super) fn set(&mut self, id: ImageId, at: Instant, is_slow: bool) {
        let (times, other) =
            if is_slow { (&mut self.slow, &mut self.prompt) } else { (&mut self.prompt, &mut self.slow) };
        other.remove(id);
        times.set(id, at);
    }

    pub(super) fn remove(&mut self, id: ImageId) {
        self.prompt.remove(id);
        self.slow.remove(id);
    }

    /// Removes and returns images that are due at `now`, at most `most`, and none whose last reading was slow.
    pub(super) fn take_due(&mut self, now: Instant, most: usize) -> Vec<ImageId> {
        self.prompt.take_due(now, most)
    }

    /// Removes and returns an image that is due at `now`, and whose last reading was slow. Read it after all others: a wait delays
    /// the readings that follow.
    pub(super) fn take_slow(&mut self, now: Instant) -> Option<ImageId> {
        self.slow.take_due(now, 1).pop()
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    const fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn readings_that_wait_take_a_fifth_of_the_time() {
        let (mut waits, now) = (LockWaits::new(), Instant::now());
        assert!(!waits.add(Duration::from_micros(999), now) && waits.waited.is_zero());
        assert!(!waits.add(milliseconds(19), now) && waits.pause_end <= now);
        assert!(!waits.add(milliseconds(1), now));
        assert_eq!((waits.pause_end, waits.waited), (now + milliseconds(80), Duration::ZERO));
        let later = now + Duration::from_secs(3600);
        assert!(waits.add(milliseconds(70), later), "it was slow");
        assert_eq!(waits.pause_end, later + milliseconds(280));
        assert!(waits.begin().is_none());
        assert!(waits.add(milliseconds(2000), later));
        assert_eq!(waits.pause_end, later + LONGEST_PAUSE);
    }

    #[test]
    fn last_readings_end_after_their_time() {
        let mut waits = LastLockWaits::new();
        for _ in 0..100 {
            waits.add(Duration::from_micros(999));
        }
        assert_eq!(waits.left, MOST_AT_END);
        waits.add(MOST_AT_END - SHORT);
        assert_eq!(waits.read(|| 7), Some(7));
        waits.add(SHORT);
        assert_eq!(waits.read(|| 7), None);
    }

    #[test]
    fn slow_processes_delay_no_other_one() {
        let id = |pid| ImageId { pid: Pid(pid), ordinal: 0 };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut times = FairRechecks::default();
        for pid in 1..=3 {
            times.set(id(pid), start, true);
        }
        times.set(id(4), start + second, false);
        times.set(id(5), start + 2 * second, false);
        assert_eq!((times.take_due(start + second, 9), times.take_slow(start + second)), (vec![id(4)], Some(id(1))));
        // Its next reading was not slow.
        times.set(id(2), start, false);
        assert_eq!(times.take_due(start + 2 * second, 1), [id(2)]);
        assert_eq!([times.take_slow(start + second), times.take_slow(start + second)], [Some(id(3)), None]);
        times.set(id(5), start, true);
        times.remove(id(5));
        let later = start + 9 * second;
        assert_eq!((times.take_due(later, 9), times.take_slow(later)), (vec![], None), "each image has one time");
    }
}
