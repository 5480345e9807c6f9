//! Delays of the threads that read the rings. They show why a ring was full.

use std::time::{Duration, Instant};

/// Longest delays of a shard, or of all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Longest time from the end of one read of a source to the next.
    pub gap: Duration,
    /// Time within `gap` that the thread waited for a processor; 0 if the kernel does not count this time.
    pub waited: Duration,
    /// Longest time of a read.
    pub read: Duration,
    /// Number of records of this read.
    pub records: usize,
}

impl Delays {
    /// Adds the delays of another shard.
    pub(super) fn merge(&mut self, other: Self) {
        if other.gap > self.gap {
            (self.gap, self.waited) = (other.gap, other.waited);
        }
        if other.read > self.read {
            (self.read, self.records) = (other.read, other.records);
        }
    }
}

/// Meter of the delays of a shard.
#[derive(Debug, Default)]
pub(super) struct DelayMeter {
    delays: Delays,
    /// End of the last read, and the total time until then that the thread waited for a processor.
    last: Option<(Instant, Duration)>,
}

impl DelayMeter {
    /// Begins a read. `waited`: total time so far that the thread has waited for a processor.
    pub(super) fn begin(&mut self, now: Instant, waited: Duration) {
        let Some((end, before)) = self.last else { return };
        let gap = now.saturating_duration_since(end);
        self.delays.merge(Delays { gap, waited: waited.saturating_sub(before), ..Delays::default() });
    }

    /// Ends a read that began at `begin`.
    pub(super) fn end(&mut self, begin: Instant, now: Instant, waited: Duration, records: usize) {
        self.last = Some((now, waited));
        self.delays.merge(Delays { read: now.saturating_duration_since(begin), records, ..Delays::default() });
    }

    pub(super) const fn delays(&self) -> Delays {
        self.delays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_delays_are_kept_with_their_parts() {
        let (start, milliseconds) = (Instant::now(), Duration::from_millis);
        let mut meter = DelayMeter::default();
        // Each row: begin of a read, waiting time for a processor so far, end of the read, and number of records.
        for (begin, waited, end, records) in [(0, 0, 5, 100), (1405, 1200, 1435, 16_384), (1455, 1210, 1456, 3)] {
            let at = start + milliseconds(begin);
            meter.begin(at, milliseconds(waited));
            meter.end(at, start + milliseconds(end), milliseconds(waited), records);
        }
        let expected =
            Delays { gap: milliseconds(1400), waited: milliseconds(1200), read: milliseconds(30), records: 16_384 };
        assert_eq!(meter.delays(), expected);
        let mut sum = Delays { gap: milliseconds(2000), ..Delays::default() };
        sum.merge(expected);
        assert_eq!(sum, Delays { gap: milliseconds(2000), waited: Duration::ZERO, ..expected });
    }
}
