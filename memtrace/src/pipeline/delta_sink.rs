//! Receiver of the changes in each interval.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use crate::ledger::Ledger;
use crate::model::{Delta, Tick};

/// Receives a [`Delta`] of each shard after each interval, with the number of the shard.
///
/// A shard never waits for the receiver. While the channel is full, changes stay in the ledger, and the next delta covers
/// more than one interval. The last deltas are in [`RunTotals`](super::RunTotals).
#[derive(Clone, Debug)]
pub struct DeltaSink {
    /// Length of an interval.
    pub interval: Duration,
    /// Time of tick 0, and of the start of the first interval.
    pub start: Instant,
    /// Channel to the receiver.
    pub sender: SyncSender<(usize, Delta)>,
}

/// Sends the deltas of one shard.
pub(super) struct DeltaSender {
    /// Number of the shard.
    shard: usize,
    sink: DeltaSink,
    /// End of the current interval.
    due: Instant,
    /// Delta that the channel had no room for.
    unsent: Option<Delta>,
}

impl DeltaSender {
    pub(super) fn new(shard: usize, sink: DeltaSink) -> Self {
        let due = next_boundary(&sink, Instant::now());
        Self { shard, sink, due, unsent: None }
    }

    /// Sends the changes of the ledger if an interval has ended.
    pub(super) fn send(&mut self, ledger: &mut Ledger) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = next_boundary(&self.sink, now);
        if let Some(unsent) = self.unsent.take() {
            self.try_send(unsent);
        }
        if self.unsent.is_none() {
            let until = Tick::at(now.saturating_duration_since(self.sink.start));
            self.try_send(ledger.take_delta(until));
        }
    }

    /// Returns the deltas that were not sent, in order. The last one ends at `now`.
    pub(super) fn finish(self, ledger: &mut Ledger, now: Tick) -> Vec<Delta> {
        self.unsent.into_iter().chain([ledger.take_delta(now)]).collect()
    }

    fn try_send(&mut self, delta: Delta) {
        let result = self.sink.sender.try_send((self.shard, delta));
        if let Err(TrySendError::Full((_, delta)) | TrySendError::Disconnected((_, delta))) = result {
            self.unsent = Some(delta);
        }
    }
}

/// Returns the end of the interval that contains `now`. All shards have the same intervals.
fn next_boundary(DeltaSink { interval, start, .. }: &DeltaSink, now: Instant) -> Instant {
    let passed = now.saturating_duration_since(*start).as_nanos();
    let rest = interval.as_nanos().checked_sub(passed.checked_rem(interval.as_nanos()).unwrap_or(0));
    now + rest.map_or(Duration::ZERO, |rest| Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_begin_at_multiples_of_their_length() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let boundary = |interval, passed| {
            let (sender, _) = std::sync::mpsc::sync_channel(0);
            next_boundary(&DeltaSink { interval, start, sender }, start + passed) - start
        };
        assert_eq!(
            [0, 1, 9, 10, 25].map(|passed| boundary(seconds(10), seconds(passed))),
            [10, 10, 10, 20, 30].map(seconds)
        );
        assert_eq!(boundary(Duration::ZERO, seconds(7)), seconds(7));
    }
}
