//! Reads values at the ends of intervals, and adds them to these intervals.

use std::time::Duration;

use memtrace_history::{Interval, Status};
use memtrace_model::{Cgroup, ImageId};

use super::memory_sampler::{MemorySampler, Readings};

/// Maximum number of readings that wait for their intervals. Beyond it, nothing is read.
const MAX_WAITING: usize = 16;

/// Reader of the values at the ends of intervals. It keeps the values until their interval is recorded.
#[derive(Debug)]
pub(super) struct IntervalReadings {
    sampler: MemorySampler,
    interval: Duration,
    /// End of the current interval.
    due: Duration,
    /// Readings with the ends of their intervals, in order of time.
    waiting: Vec<(Duration, Readings)>,
}

impl IntervalReadings {
    pub(super) fn new(interval: Duration) -> Self {
        Self { sampler: MemorySampler::start(), interval, due: Duration::ZERO, waiting: Vec::new() }
    }

    /// Reads the values at the first call, and whenever an interval has ended before `now`. `processes`: running
    /// processes.
    ///
    /// The first values belong to the first interval.
    pub(super) fn update<'a>(
        &mut self,
        now: Duration,
        processes: impl Iterator<Item = (ImageId, Option<&'a Cgroup>)>,
        status: &Status,
    ) {
        if now < self.due || self.waiting.len() >= MAX_WAITING {
            return;
        }
        let own = [
            ("recording_bytes", status.size.0),
            ("recorded_intervals", status.intervals),
            ("merged_intervals", status.merged),
            ("gaps", status.gaps),
        ];
        let readings = self.sampler.read(processes, &own);
        let passed = now.as_nanos() / self.interval.as_nanos().max(1);
        let boundary =
            |number: u128| Duration::from_nanos(u64::try_from(number * self.interval.as_nanos()).unwrap_or(u64::MAX));
        self.waiting.push((boundary(passed), readings));
        self.due = boundary(passed + 1);
    }

    /// Moves the values up to the end of `interval` to this interval.
    pub(super) fn move_to(&mut self, interval: &mut Interval) {
        let after = self.waiting.partition_point(|(end, _)| *end <= interval.span.end);
        for (_, readings) in self.waiting.drain(..after) {
            interval.merge(Interval {
                span: interval.span.clone(),
                samples: readings.samples,
                facts: readings.facts,
                ..Interval::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use memtrace_history::{Sample, Subject};

    use super::*;

    fn samples(readings: &mut IntervalReadings, end: u64) -> Vec<u64> {
        let end = Duration::from_millis(end);
        let mut interval = Interval { span: Duration::ZERO..end, ..Interval::default() };
        readings.move_to(&mut interval);
        let is_size = |sample: &&Sample| sample.subject == Subject::Memtrace && sample.counter == "recording_bytes";
        interval.samples.iter().filter(is_size).map(|sample| sample.value).collect()
    }

    #[test]
    fn values_belong_to_the_interval_at_its_end() {
        let mut readings = IntervalReadings::new(Duration::from_secs(1));
        for (now, size) in [(0, 1), (100, 2), (900, 3), (1050, 4), (1900, 5), (3010, 6)] {
            let status = Status { size: memtrace_model::Bytes(size), ..Status::default() };
            readings.update(Duration::from_millis(now), [].into_iter(), &status);
        }
        assert_eq!(samples(&mut readings, 1001), [4]);
        assert_eq!(samples(&mut readings, 1500), [] as [u64; 0], "an interval that ends at a mark");
        assert_eq!(samples(&mut readings, 3004), [6]);
    }
}
