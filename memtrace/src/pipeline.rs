//! Conversion of the rings' events to one snapshot. Each shard has a thread, a source and a ledger; shards share no lock.

mod progress;
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
use progress::ShardProgress;
use shard::Shard;

pub use progress::Progress;
pub use source::{Drained, Source};

/// Running shards, each on its own thread. Dropping them ends the threads without a snapshot.
#[derive(Debug)]
pub struct Shards {
    shards: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    progress: Arc<ShardProgress>,
    /// Sends the time of the snapshot. Dropping it ends the shard without one.
    finish: Sender<Tick>,
    thread: JoinHandle<Option<Snapshots>>,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTotals {
    /// Merged snapshots of all shards.
    pub snapshots: Snapshots,
    /// Number of applied events.
    pub events: u64,
    /// Messages of the shards that panicked: their totals are missing.
    pub failures: Vec<String>,
}

/// Error at the start of the shards.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A thread could not be created.
    #[error("cannot start the thread of shard {shard}: {source}")]
    Start {
        /// Number of the shard.
        shard: usize,
        /// Error of the call.
        source: std::io::Error,
    },
}

impl Shards {
    /// Starts a shard with ledgers of `classes` for each source. `settings` apply to the whole run: the limit of live blocks
    /// is divided among the shards, and a peak is kept only with a single shard, since the peaks of shards cannot be added.
    ///
    /// # Errors
    ///
    /// [`Error::Start`]; shards that have already started end.
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
            let progress = Arc::new(ShardProgress::default());
            let shard = Shard::new(source, settings, Arc::clone(&classes), Arc::clone(&progress));
            let thread = thread::Builder::new()
                .name(format!("memtrace-shard-{number}"))
                .spawn(move || shard.run(&commands))
                .map_err(|source| Error::Start { shard: number, source })?;
            Ok(Running { progress, finish, thread })
        };
        Ok(Self { shards: sources.into_iter().enumerate().map(start).collect::<Result<_, _>>()? })
    }

    /// Returns the recent progress of all shards.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shards.iter().fold(Progress::default(), |sum, shard| {
            let one = shard.progress.read();
            Progress {
                events: sum.events + one.events,
                live: Bytes(sum.live.0.wrapping_add(one.live.0)),
                lost: sum.lost.saturating_add(one.lost),
            }
        })
    }

    /// Applies the remaining events of the sources and returns the merged totals at the time `now`. The sources must no longer
    /// be filled: a shard finishes when its source is empty.
    #[must_use]
    pub fn finish(self, now: Tick) -> RunTotals {
        for shard in &self.shards {
            // Sending fails if the shard panicked, which the join below reports.
            let _ = shard.finish.send(now);
        }
        // The number of events is final once the thread is joined.
        let ended: Vec<_> =
            self.shards.into_iter().map(|shard| (shard.thread.join(), shard.progress.read().events)).collect();
        let mut all = RunTotals { snapshots: Snapshots::default(), events: 0, failures: Vec::new() };
        for (shard, (result, events)) in ended.into_iter().enumerate() {
            match result {
                Ok(snapshots) => all.snapshots.merge(snapshots.unwrap_or_default()),
                Err(panic) => all.failures.push(format!("shard {shard} panicked: {}", message_of(panic.as_ref()))),
            }
            all.events += events;
        }
        all
    }
}

/// Counts [`LossReason::StackFramesLost`]. The snapshot must contain all shards, since the frames of a stack may be in
/// another shard than its events, and the stacks that were finished in user space.
pub fn count_missing_frames(snapshot: &mut Snapshot) {
    let lost = snapshot
        .images
        .values()
        .flat_map(|image| &image.by_stack)
        .filter(|(key, _)| key.stack.has_frames() && !snapshot.stacks.contains(key.stack))
        .map(|(_, stack)| stack.usage.events())
        .sum();
    snapshot.losses.add(LossReason::StackFramesLost, lost);
}

/// Returns the message of a panic, which is a `&str` or a `String`.
fn message_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => String::from(*text),
        (_, Some(text)) => text.clone(),
        (None, None) => String::from("no message"),
    }
}
