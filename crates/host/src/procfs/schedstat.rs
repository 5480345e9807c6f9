//! Times that the scheduler counts, from `schedstat` of a process or thread (Documentation/scheduler/sched-stats.rst).

#![expect(clippy::disallowed_methods, reason = "the file is in procfs")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Times of a thread that the scheduler counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SchedulerTimes {
    /// Time that the thread has run.
    pub(super) ran: Duration,
    /// Time that the thread was runnable and waited for a processor.
    pub(super) waited: Duration,
}

impl SchedulerTimes {
    /// Parses the file. If the kernel does not count the times, they are 0.
    pub(super) fn parse(text: &str) -> Self {
        let mut times = text.split_ascii_whitespace().map(|word| Duration::from_nanos(word.parse().unwrap_or(0)));
        let mut next = || times.next().unwrap_or_default();
        Self { ran: next(), waited: next() }
    }
}

/// Clock of the time that a thread of memtrace waits for a processor.
#[derive(Debug)]
pub struct ProcessorWait(File);

impl ProcessorWait {
    /// Returns the clock of the calling thread; `None` if the kernel does not count the time.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        File::open("/proc/thread-self/schedstat").ok().map(Self)
    }

    /// Returns the time that the thread has waited for a processor since its start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let mut text = [0; 96];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
        SchedulerTimes::parse(text).waited
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn times_are_parsed_or_0() {
        let times =
            |ran, waited| SchedulerTimes { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited) };
        assert_eq!(SchedulerTimes::parse("41962157 3002 17\n"), times(41_962_157, 3002));
        assert_eq!(SchedulerTimes::parse(""), times(0, 0));
    }

    #[test]
    fn thread_that_shares_a_processor_waits_for_it() {
        let mut child = Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        let busy = || {
            let mut first = rustix::thread::CpuSet::new();
            first.set(0);
            rustix::thread::sched_setaffinity(None, &first).unwrap();
            let clock = ProcessorWait::of_this_thread().unwrap();
            while clock.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
        };
        thread::spawn(busy).join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
