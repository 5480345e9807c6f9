//! Time that a thread of memtrace spends waiting for something other than a processor.

#![expect(clippy::disallowed_methods, reason = "the file is in procfs")]

use std::fs;
use std::time::{Duration, Instant};

use memtrace_model::Tid;

use super::schedstat::SchedulerTimes;

/// Clock of the time in which a thread neither runs nor waits for a processor. A slow machine does not advance it, so it
/// measures how long others let the thread wait: a file system, or the holder of a lock.
pub(crate) struct BlockedTime {
    tid: Tid,
    start: Instant,
    /// Time by the scheduler at the start.
    scheduled: Duration,
}

impl BlockedTime {
    /// Starts the clock of a thread of this process.
    pub(crate) fn start(tid: Tid) -> Self {
        Self { tid, start: Instant::now(), scheduled: scheduled_time(tid) }
    }

    /// Starts the clock of the calling thread.
    pub(crate) fn of_this_thread() -> Self {
        Self::start(Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()))
    }

    /// Returns the time of the clock. It is too high while the thread waits for a processor, because the kernel adds that time
    /// when the wait ends.
    pub(crate) fn elapsed(&self) -> Duration {
        // The time by the scheduler is read last, so that it covers the other.
        let elapsed = self.start.elapsed();
        elapsed.saturating_sub(scheduled_time(self.tid).saturating_sub(self.scheduled))
    }
}

/// Returns the time for which a thread of this process has run, or has waited for a processor. If the kernel does not count
/// it, the time is 0.
fn scheduled_time(tid: Tid) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{}/schedstat", tid.0)).unwrap_or_default();
    let SchedulerTimes { ran, waited } = SchedulerTimes::parse(&text);
    ran + waited
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn only_waits_advance_the_clock() {
        let clock = BlockedTime::of_this_thread();
        while clock.start.elapsed() < Duration::from_secs(1) {
            std::hint::spin_loop();
        }
        let busy = clock.elapsed();
        thread::sleep(Duration::from_secs(1));
        let blocked = clock.elapsed();
        assert!(busy < Duration::from_millis(500), "{busy:?}");
        assert!(blocked >= Duration::from_millis(900), "{blocked:?}");
    }
}
