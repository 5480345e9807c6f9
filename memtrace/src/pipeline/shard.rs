//! Shard: applies the events of one source to one ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use super::progress::ShardProgress;
use super::source::{Drained, Source};
use crate::ledger::{Ledger, Settings};
use crate::model::{EventClass, LossReason, Snapshots, Tick};

/// Records drained between two checks for commands: a few milliseconds of work.
const DRAIN_LIMIT: usize = 16 * 1024;

/// Bounds of the pause between polls of a source. A source with many records wakes its shard early, so pauses only batch
/// small numbers of records. Finishing may have to wait for the longest pause.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Shard<S> {
    source: S,
    ledger: Ledger,
    progress: Arc<ShardProgress>,
    /// Event classes with a snapshot.
    classes: Arc<[EventClass]>,
}

impl<S: Source> Shard<S> {
    pub(super) fn new(source: S, settings: Settings, classes: Arc<[EventClass]>, progress: Arc<ShardProgress>) -> Self {
        Self { source, ledger: Ledger::new(settings), progress, classes }
    }

    /// Applies events until a command asks for the snapshot; `None` if the sender of commands is dropped.
    pub(super) fn run(mut self, commands: &Receiver<Tick>) -> Option<Snapshots> {
        self.source.begin();
        let mut pause = SHORTEST_PAUSE;
        loop {
            match commands.try_recv() {
                Ok(now) => return Some(self.finish(now)),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            let records = self.drain().records;
            if records >= DRAIN_LIMIT {
                pause = SHORTEST_PAUSE;
                continue;
            }
            pause = next_pause(pause, records);
            self.source.wait(pause);
        }
    }

    fn finish(mut self, now: Tick) -> Snapshots {
        while self.drain().records > 0 {}
        let Some((&last, others)) = self.classes.split_last() else { return Snapshots::default() };
        let mut snapshots: BTreeMap<_, _> =
            others.iter().map(|&class| (class, self.ledger.snapshot(class, now))).collect();
        snapshots.insert(last, self.ledger.finish(last, now));
        Snapshots(snapshots)
    }

    fn drain(&mut self) -> Drained {
        let drained = self.source.drain(DRAIN_LIMIT, |event| self.ledger.apply(event));
        self.ledger.add_loss(LossReason::BadRecord, drained.bad);
        self.progress.update(&self.ledger);
        drained
    }
}

/// Returns the next pause: longer after few records, shorter after many.
fn next_pause(pause: Duration, records: usize) -> Duration {
    let next = match records {
        0..64 => pause * 2,
        64..1024 => pause,
        _ => pause / 2,
    };
    next.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_adapt_to_the_number_of_records() {
        let mut pause = SHORTEST_PAUSE;
        for _ in 0..10 {
            pause = next_pause(pause, 3);
        }
        assert_eq!(pause, LONGEST_PAUSE);
        assert_eq!(next_pause(pause, 500), LONGEST_PAUSE);
        for _ in 0..10 {
            pause = next_pause(pause, 5000);
        }
        assert_eq!(pause, SHORTEST_PAUSE);
    }
}
