//! One shard: it owns a source and a ledger, and moves events from the one to the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use super::{Drained, Progress, Source};
use crate::ledger::{Ledger, Settings};
use crate::model::{Bytes, EventClass, LossReason, Snapshots, Tick};

/// How many records are drained before commands are looked at and the gauge is set: a few milliseconds of work.
const DRAIN_LIMIT: usize = 16 * 1024;

/// The pauses between polls of a source that is not full. A source wakes its shard early when much has arrived, so
/// pauses only batch what is little. The longest is what finishing may have to wait for.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What a shard tells while it runs.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    events: AtomicU64,
    live: AtomicU64,
    lost: AtomicU64,
}

impl Gauge {
    /// The numbers are told one by one, each right on its own: progress needs no more.
    pub(super) fn read(&self) -> Progress {
        Progress {
            events: self.events.load(Ordering::Relaxed),
            live: Bytes(self.live.load(Ordering::Relaxed)),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    fn set(&self, ledger: &Ledger) {
        self.events.store(ledger.events(), Ordering::Relaxed);
        self.live.store(ledger.live().bytes.0, Ordering::Relaxed);
        self.lost.store(ledger.losses().total(), Ordering::Relaxed);
    }
}

/// One shard.
pub(super) struct Shard<S> {
    source: S,
    ledger: Ledger,
    gauge: Arc<Gauge>,
    /// Of these there are books.
    classes: Arc<[EventClass]>,
}

impl<S: Source> Shard<S> {
    pub(super) fn new(source: S, settings: Settings, classes: Arc<[EventClass]>, gauge: Arc<Gauge>) -> Self {
        Self { source, ledger: Ledger::new(settings), gauge, classes }
    }

    /// Moves events until a command says to finish; `None` when nobody can say so any more.
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
        self.gauge.set(&self.ledger);
        drained
    }
}

/// A pause after which about as much as is worth a wake-up has arrived: longer while little comes, shorter while much.
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
    fn pauses_grow_while_little_comes_and_shrink_while_much_does() {
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
