//! Receiver of the changes in each interval.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use memtrace_model::{Delta, Tick};

use super::waiting_stacks::WaitingStacks;
use crate::ledger::Ledger;

/// Receives a [`Delta`] of each shard after each interval, with the index of the shard.
///
/// A shard never waits for the receiver. While the channel is full, or too many stacks of the shard wait, the shard
/// keeps the delta of one interval and the deltas that end at marks. Later changes stay in the ledger, and the next
/// delta covers more than one interval. The last deltas are in [`RunTotals`](super::RunTotals).
#[derive(Clone, Debug)]
pub struct DeltaSink {
    /// Length of an interval.
    pub interval: Duration,
    /// Time of tick 0, when the first interval starts.
    pub start: Instant,
    /// Channel to the receiver.
    pub sender: SyncSender<(usize, Delta)>,
    /// Stacks of the deltas that the receiver has not released.
    pub waiting: WaitingStacks,
}

/// Sends the deltas of one shard.
pub(super) struct DeltaSender {
    /// Index of the shard.
    shard: usize,
    sink: DeltaSink,
    /// End of the current interval.
    due: Instant,
    /// Deltas that were not sent yet: at most one ends with an interval, and the others end at marks.
    unsent: VecDeque<Delta>,
    /// Times of the marks that the shard has not reached, in order.
    marks: VecDeque<Tick>,
    /// End of the last delta.
    until: Tick,
}

impl DeltaSender {
    pub(super) fn new(shard: usize, sink: DeltaSink) -> Self {
        let due = next_boundary(&sink, Instant::now());
        Self { shard, sink, due, unsent: VecDeque::new(), marks: VecDeque::new(), until: Tick::default() }
    }

    /// Sends the waiting deltas, and the changes of the ledger if an interval has ended. Returns the end of the new
    /// delta; `None` if there is none.
    pub(super) fn send(&mut self, ledger: &mut Ledger) -> Option<Tick> {
        self.try_send();
        let now = Instant::now();
        if now < self.due {
            return None;
        }
        self.due = next_boundary(&self.sink, now);
        self.unsent.is_empty().then(|| {
            let until = Tick::at(now.saturating_duration_since(self.sink.start));
            self.end_delta(until, false, ledger)
        })
    }

    /// Adds a mark. The caller limits the number of marks that wait.
    pub(super) fn add_mark(&mut self, at: Tick) {
        self.marks.push_back(at);
    }

    /// Returns true if an event at `tick` is later than a mark that the shard has not reached.
    #[inline]
    pub(super) fn is_after_mark(&self, tick: Tick) -> bool {
        self.marks.front().is_some_and(|&mark| mark < tick)
    }

    /// Ends a delta at the next mark, if there is one. The ledger must have applied all events until the mark, and
    /// no later event. Returns the end of the delta.
    pub(super) fn end_at_mark(&mut self, ledger: &mut Ledger) -> Option<Tick> {
        let mark = self.marks.pop_front()?;
        let until = self.end_delta(mark, true, ledger);
        ledger.begin_epoch(mark);
        Some(until)
    }

    /// Returns the deltas that were not sent, in order. The last one ends at `now`. The shard must have reached all
    /// marks.
    pub(super) fn finish(self, ledger: &mut Ledger, now: Tick) -> Vec<Delta> {
        ledger.send_stacks();
        self.unsent.into_iter().chain([ledger.take_delta(now)]).collect()
    }

    fn end_delta(&mut self, until: Tick, is_marked: bool, ledger: &mut Ledger) -> Tick {
        // The shard can have ended an interval between the time of the mark and the arrival of its command.
        self.until = self.until.max(until);
        if is_marked {
            ledger.send_stacks();
        }
        self.unsent.push_back(Delta { is_marked, ..ledger.take_delta(self.until) });
        self.try_send();
        self.until
    }

    fn try_send(&mut self) {
        while let Some(delta) = self.unsent.pop_front() {
            let stacks = delta.stack_count();
            if !self.sink.waiting.request(self.shard, stacks) {
                self.unsent.push_front(delta);
                return;
            }
            let result = self.sink.sender.try_send((self.shard, delta));
            if let Err(TrySendError::Full((_, delta)) | TrySendError::Disconnected((_, delta))) = result {
                self.sink.waiting.release(self.shard, stacks);
                self.unsent.push_front(delta);
                return;
            }
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
            let sink = DeltaSink { interval, start, sender, waiting: WaitingStacks::new(1, 0) };
            next_boundary(&sink, start + passed) - start
        };
        assert_eq!(
            [0, 1, 9, 10, 25].map(|passed| boundary(seconds(10), seconds(passed))),
            [10, 10, 10, 20, 30].map(seconds)
        );
        assert_eq!(boundary(Duration::ZERO, seconds(7)), seconds(7));
    }
}
