//! Sampler: reads the counters at each interval, without waiting for the processes.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use memtrace_host::kernel::{ProcessStart, ThreadExit, ThreadUsageReader};
use memtrace_host::procfs;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::{SendError, TrySendError};

use super::jemalloc::JemallocReader;
use super::process_readings::ProcessReadings;
use super::process_selection::ProcessSelection;
use super::reading::Reading;
use crate::run_kit::clock;

/// Interval between two reads of thread exits. Their ring has space for 24,000 exits.
const EXITS: Duration = Duration::from_millis(100);

/// Request to the sampler.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// Read now, in addition to the reading at the end of the interval.
    Read,
    /// Read for the last time, and end.
    Stop,
}

/// Reader of all counters.
pub(super) struct Sampler {
    pub(super) reader: ThreadUsageReader,
    /// Origin of the monitor's times on the monotonic clock.
    pub(super) clock_start: Duration,
    pub(super) interval: Duration,
    pub(super) selection: ProcessSelection,
    pub(super) readings: ProcessReadings,
    pub(super) jemalloc: JemallocReader,
    /// Exits of threads since the last reading.
    pub(super) exits: Vec<ThreadExit>,
    /// Maximum number of exits in a reading. Further exited threads get no rows.
    pub(super) most_exits: usize,
}

impl Sampler {
    /// Sends a reading now, at the end of each interval and for each request. Returns after [`Request::Stop`], or if
    /// the sender of requests is gone.
    ///
    /// # Errors
    ///
    /// The counters of the BPF programs cannot be read.
    pub(super) fn run(mut self, requests: &Receiver<Request>, readings: &Sender<Reading>) -> io::Result<()> {
        if !self.jemalloc.is_empty() {
            // The first read of jemalloc's counters may take a second. This extra reading keeps the delay out of the baseline:
            // all values of the baseline should be from about the same time.
            self.read()?;
        }
        let start = Instant::now();
        let mut skipped = 0;
        let mut is_last = false;
        loop {
            let (mut reading, exited) = self.read()?;
            reading.skipped = skipped;
            let sent = if is_last {
                readings.blocking_send(reading).map_err(|SendError(unsent)| unsent)
            } else {
                readings.try_send(reading).map_err(TrySendError::into_inner)
            };
            match sent {
                Ok(()) => {
                    exited.into_iter().for_each(|process| self.reader.forget(process));
                    skipped = 0;
                }
                Err(_) if is_last => {}
                Err(unsent) => {
                    let newer = std::mem::replace(&mut self.exits, unsent.exits);
                    self.exits.extend(newer);
                    skipped += 1;
                }
            }
            if is_last {
                return Ok(());
            }
            match self.wait(requests, until_next(start.elapsed(), self.interval)) {
                Ok(Request::Read) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => is_last = true,
            }
        }
    }

    /// Waits at most `time` for a request. Reads the exits of threads during the wait.
    fn wait(&mut self, requests: &Receiver<Request>, time: Duration) -> Result<Request, RecvTimeoutError> {
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            if left <= EXITS {
                return requests.recv_timeout(left);
            }
            match requests.recv_timeout(EXITS) {
                Err(RecvTimeoutError::Timeout) => self.read_exits(),
                received => return received,
            }
        }
    }

    fn read_exits(&mut self) {
        let Self { reader, jemalloc, exits, most_exits, .. } = self;
        reader.exits(|mut exit| {
            jemalloc.end_thread(&mut exit);
            if exits.len() < *most_exits {
                exits.push(exit);
            }
        });
    }

    /// Returns a reading, and the processes that have exited.
    fn read(&mut self) -> io::Result<(Reading, Vec<ProcessStart>)> {
        let mut exited = Vec::new();
        let mut reading = Reading::default();
        // Read the exits before the turnover, so that the turnover has counted them.
        self.read_exits();
        let mut exits = std::mem::take(&mut self.exits);
        // Read the turnover before the running threads. If a thread exits between the two reads, its counters are
        // missing until the next reading, instead of being counted twice.
        for (process, turnover) in self.reader.turnover() {
            // A process without live threads can no longer be tested, so an earlier decision counts.
            let is_selected = match turnover.has_exited || turnover.is_ending {
                true => self.selection.has_selected(process),
                false => self.selection.contains(process),
            };
            if turnover.has_exited {
                exited.push(process);
            }
            if is_selected {
                reading.turnover.insert(process, turnover);
            }
        }
        // Later readings do not contain a process that has exited, so this reading gets the last exits of its threads.
        self.read_exits();
        let turnover = &reading.turnover;
        let last = |exit: &mut ThreadExit| turnover.get(&process_of(exit)).is_some_and(|changes| changes.has_exited);
        exits.extend(self.exits.extract_if(.., last));
        // The turnover has the selected processes only.
        exits.retain(|exit| turnover.contains_key(&process_of(exit)));
        reading.exits = exits;
        reading.at = clock::monotonic().saturating_sub(self.clock_start);
        reading.boot_ns = clock::boot_ns();
        let Self { reader, selection, .. } = self;
        let threads = &mut reading.threads;
        reader.running(|process| selection.contains(process), |thread| threads.push(thread))?;
        self.selection.end_reading();
        self.jemalloc.read(&mut reading);
        reading.values = self.readings.read(&reading.threads);
        reading.machine = procfs::machine_usage();
        Ok((reading, exited))
    }
}

const fn process_of(exit: &ThreadExit) -> ProcessStart {
    (exit.thread.pid, exit.process_start_ns)
}

/// Returns the time until the next multiple of `interval`. Missed intervals are skipped.
fn until_next(elapsed: Duration, interval: Duration) -> Duration {
    let interval = interval.as_nanos().max(1);
    let wait = interval - elapsed.as_nanos() % interval;
    Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_at_multiples_of_the_interval() {
        let [interval, early, late] = [1000, 3, 2999].map(Duration::from_millis);
        assert_eq!(until_next(early, interval), Duration::from_millis(997));
        assert_eq!(until_next(late, interval), Duration::from_millis(1));
        assert_eq!(until_next(interval, interval), interval);
    }
}
