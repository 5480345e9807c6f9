//! Time that a thread of memtrace spends waiting for something other than a processor.

#![expect(clippy::disallowed_methods, reason = "the file is in procfs")]

use std::fs;
use std::time::{Duration, Instant};

use memtrace_model::Tid;

use super::schedstat::SchedulerTimes;

/// Clock that advances while a thread neither runs nor waits for a processor. The time that a thread waits for a processor on a
/// slow machine does not count. So the clock measures how long a file system, or the holder of a lock, lets the thread wait.
pub(crate) struct BlockedTime {
    tid: Tid,
    start: Instant,
    /// Scheduled time ([`scheduled_time`]) at the start.
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

    /// Returns the time of the clock. While the thread waits for a processor, the time is too high, because the kernel adds the
    /// wait to the scheduled time only when the wait ends.
    pub(crate) fn elapsed(&self) -> Duration {
        // Read the scheduled time last, so that it covers `elapsed`.
        let elapsed = self.start.elapsed();
        elapsed.saturating_sub(scheduled_time(self.tid).saturating_sub(self.scheduled))
    }
}

/// Returns the time that a thread of this process has run, or has waited for a processor; 0 if the kernel does not count it.
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
