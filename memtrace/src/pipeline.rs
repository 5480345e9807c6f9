//! From the events of each ring to one snapshot: a thread, a source and a ledger for each shard, and no lock between
//! them.

mod shard;
mod source;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use crate::ledger::Settings;
use crate::model::{Bytes, EventClass, LossReason, Snapshot, Snapshots, Tick};
use shard::{Gauge, Shard};

pub use source::{Drained, Source};

/// All shards of a run, each on its thread. Dropping them ends the threads without a snapshot.
#[derive(Debug)]
pub struct Shards {
    shards: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    gauge: Arc<Gauge>,
    /// Says when to finish; its loss says to end.
    finish: Sender<Tick>,
    thread: JoinHandle<Option<Snapshots>>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events booked.
    pub events: u64,
    /// Live bytes, of whatever age.
    pub live: Bytes,
    /// Losses that the ledgers counted, all reasons together.
    pub lost: u64,
}

/// What a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Books {
    /// The books of all shards, merged.
    pub snapshots: Snapshots,
    /// Events booked in all.
    pub events: u64,
    /// Messages of the shards that panicked: their totals are missing.
    pub failures: Vec<String>,
}

/// Error at the start of the shards.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system gave no thread.
    #[error("cannot start the thread of shard {shard}: {source}")]
    Start {
        /// The shard's number.
        shard: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Shards {
    /// Starts a shard for each source; there are to be books of `classes`. `settings` are those of the whole run: the live blocks that it may hold are
    /// divided among the shards, and a peak is kept only where there is one shard, since the peaks of parts don't add
    /// up.
    ///
    /// # Errors
    ///
    /// [`Error::Start`]; the shards already started then end.
    pub fn start<S: Source + 'static>(
        sources: Vec<S>,
        settings: Settings,
        classes: &[EventClass],
    ) -> Result<Self, Error> {
        let count = sources.len();
        let settings = Settings {
            blocks: settings.blocks.div_ceil(count.max(1) as u64),
            track_peak: settings.track_peak && count == 1,
            ..settings
        };
        let classes: Arc<[EventClass]> = classes.into();
        let start = |(number, source)| {
            let (finish, commands) = mpsc::channel();
            let gauge = Arc::new(Gauge::default());
            let shard = Shard::new(source, settings, Arc::clone(&classes), Arc::clone(&gauge));
            let thread = thread::Builder::new()
                .name(format!("memtrace-shard-{number}"))
                .spawn(move || shard.run(&commands))
                .map_err(|source| Error::Start { shard: number, source })?;
            Ok(Running { gauge, finish, thread })
        };
        Ok(Self { shards: sources.into_iter().enumerate().map(start).collect::<Result<_, _>>()? })
    }

    /// How far the shards are, a moment ago.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shards.iter().fold(Progress::default(), |sum, shard| {
            let one = shard.gauge.read();
            Progress {
                events: sum.events + one.events,
                live: Bytes(sum.live.0.wrapping_add(one.live.0)),
                lost: sum.lost.saturating_add(one.lost),
            }
        })
    }

    /// Books what the sources still hold, and gives the books of all shards at the moment `now`. Whoever fills the
    /// sources must have stopped: a shard finishes when its source is empty.
    #[must_use]
    pub fn finish(self, now: Tick) -> Books {
        for shard in &self.shards {
            // A shard that panicked listens no more; joining it says so.
            let _ = shard.finish.send(now);
        }
        // A gauge is read when its thread has been joined: only then has it told everything.
        let ended: Vec<_> =
            self.shards.into_iter().map(|shard| (shard.thread.join(), shard.gauge.read().events)).collect();
        let mut all = Books { snapshots: Snapshots::default(), events: 0, failures: Vec::new() };
        for (shard, (result, events)) in ended.into_iter().enumerate() {
            match result {
                Ok(snapshots) => all.snapshots.merge(snapshots.unwrap_or_default()),
                Err(panic) => all.failures.push(format!("shard {shard} panicked: {}", message_of(panic.as_ref()))),
            }
            all.events += events;
        }
        all.snapshots.0.values_mut().for_each(settle);
        all
    }
}

/// Counts [`LossReason::StackFramesLost`], once for a snapshot whose shards are all merged: before, the frames of a
/// stack may still be in another shard.
pub fn settle(snapshot: &mut Snapshot) {
    let lost = snapshot
        .images
        .values()
        .flat_map(|image| &image.by_stack)
        .filter(|(key, _)| key.stack.has_frames() && !snapshot.stacks.contains(key.stack))
        .map(|(_, stack)| stack.usage.events())
        .sum();
    snapshot.losses.add(LossReason::StackFramesLost, lost);
}

/// What a panic said: `panic!` carries a `&str` or a `String`.
fn message_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => String::from(*text),
        (_, Some(text)) => text.clone(),
        (None, None) => String::from("no message"),
    }
}
