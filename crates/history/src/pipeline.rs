//! Conversion of the rings' events to one snapshot for each event class. Each shard has its own thread, source and
//! ledger; shards share no lock.

mod account_sender;
mod delays;
mod delta_sink;
mod ended_parts;
mod ended_sink;
mod progress;
mod shard;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod waiting_stacks;

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memtrace_model::{
    Amount, CallsBySize, Delta, EndedImage, Event, EventClass, ImageEnd, ImageId, ImageUsage, LossReason, Snapshot,
    Snapshots, Stacks, Tick, TouchedProcesses,
};

use crate::account_changes::{AccountChanges, GroupMember};
use crate::ledger::{Demoted, Settings};
use progress::ShardProgress;
use shard::{Command, Shard, ShardTotals};

pub use delays::Delays;
pub use delta_sink::DeltaSink;
pub use ended_parts::EndedParts;
pub use ended_sink::{EndedReceiver, EndedSink, ended_channel};
pub use progress::Progress;
pub use sink::{AccountSink, Sinks};
pub use source::{Drained, Source};
pub use waiting_stacks::WaitingStacks;

/// Running shards, each on its own thread. Dropping them ends the threads without a snapshot.
#[derive(Debug)]
pub struct Shards {
    shards: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    progress: Arc<ShardProgress>,
    /// Sender of commands. Dropping it ends the shard without a result.
    commands: Sender<Command>,
    thread: JoinHandle<Option<ShardTotals>>,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTotals {
    /// Merged snapshots of all shards. If there is a sink for ended images, the snapshots have running images only.
    pub snapshots: Snapshots,
    /// Ended images that were not sent to the sink, with the indices of their shards.
    pub ended: Vec<(usize, Vec<EndedImage>)>,
    /// Deltas that were not sent, with the indices of their shards. The deltas of one shard are in order.
    pub deltas: Vec<(usize, Delta)>,
    /// Changes of accounts that were not sent, in order, as [`AccountSink`] receives them.
    pub accounts: Vec<(u64, AccountChanges)>,
    /// Number of applied events.
    pub events: u64,
    /// Number of recorded allocations by size.
    pub calls: CallsBySize,
    /// Longest delays of the threads that read the sources.
    pub delays: Delays,
    /// Processes that were demoted since [`Shards::spread_demotions`].
    pub demoted: Vec<Demoted>,
    /// Messages of the shards that panicked. The totals of these shards are missing.
    pub failures: Vec<String>,
}

/// Error at the start of the shards.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A thread could not be created.
    #[error("cannot start the thread of shard {shard}: {source}")]
    Start {
        /// Index of the shard.
        shard: usize,
        /// Error of the call.
        source: std::io::Error,
    },
}

impl Shards {
    /// Starts a shard for each source. `classes`: event classes with a snapshot. `settings` apply to the whole run:
    /// the limit of live blocks is divided among the shards. Peaks and accounts are kept only with a single shard,
    /// since the peaks and water marks of several shards do not add up.
    ///
    /// While one of the `sinks` is full, its data stays in the shard: a shard never waits for a receiver.
    ///
    /// # Errors
    ///
    /// [`Error::Start`]; shards that have already started end.
    pub fn start<S: Source + 'static>(
        sources: Vec<S>,
        settings: Settings,
        classes: &[EventClass],
        sinks: &Sinks,
    ) -> Result<Self, Error> {
        let count = sources.len();
        let settings = Settings {
            blocks: settings.blocks.div_ceil(count.max(1) as u64),
            track_peak: settings.track_peak && count == 1,
            accounts: settings.accounts.filter(|_| count == 1),
            ..settings
        };
        let classes: Arc<[EventClass]> = classes.into();
        let start = |(number, source)| {
            let (commands, receiver) = mpsc::channel();
            let progress = Arc::new(ShardProgress::default());
            let shard =
                Shard::new(number, source, settings, Arc::clone(&classes), Arc::clone(&progress), sinks.clone());
            let thread = thread::Builder::new()
                .name(format!("memtrace-shard-{number}"))
                .spawn(move || shard.run(&receiver))
                .map_err(|source| Error::Start { shard: number, source })?;
            Ok(Running { progress, commands, thread })
        };
        Ok(Self { shards: sources.into_iter().enumerate().map(start).collect::<Result<_, _>>()? })
    }

    /// Returns the recent progress of all shards.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shards.iter().fold(Progress::default(), |sum, shard| sum + shard.progress.read())
    }

    /// Returns true if each shard has read its source since the last time that this returned true.
    #[must_use]
    pub fn have_answered(&self) -> bool {
        let have_answered = self.shards.iter().all(|shard| shard.progress.has_answered());
        if have_answered {
            self.shards.iter().for_each(|shard| shard.progress.forget_answer());
        }
        have_answered
    }

    /// Ends the current delta of each shard at `at`, the present time: changes before and after `at` are in
    /// different deltas. If an event from before `at` arrives after a shard has read its source, the event belongs
    /// to the later delta. The caller limits the number of marks.
    pub fn mark(&self, at: Tick) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::Mark(at));
        }
    }

    /// Leaves the stacks of images that start from now on out of deltas until the image has existed for `age`, as
    /// [`Ledger::defer_stacks`](crate::ledger::Ledger::defer_stacks) does. The shards start to defer at slightly
    /// different times.
    pub fn defer_stacks(&self, age: Duration) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::DeferStacks(age));
        }
    }

    /// Requests the changes of accounts. The shard sends them to [`Sinks::accounts`].
    pub fn send_accounts(&self) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::SendAccounts);
        }
    }

    /// Makes accounts members of groups, as [`Ledger::group_accounts`](crate::ledger::Ledger::group_accounts) does.
    /// Only a single shard has accounts.
    pub fn group_accounts(&self, members: Vec<GroupMember>) {
        if let Some(shard) = self.shards.first() {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::GroupAccounts(members));
        }
    }

    /// Separates the changes of accounts until `at`, the present time, from later changes, as [`Self::mark`] does.
    /// `number`: number of the split, which must increase. The caller limits the number of splits that wait.
    pub fn split_accounts(&self, number: u64, at: Tick) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::SplitAccounts(number, at));
        }
    }

    /// If a shard has demoted processes, demotes these processes in all other shards too. Returns these processes.
    #[must_use]
    pub fn spread_demotions(&self) -> Vec<Demoted> {
        let demoted: Vec<_> = self.shards.iter().flat_map(|shard| shard.progress.take_demoted()).collect();
        if !demoted.is_empty() {
            let processes: Arc<[_]> = demoted.clone().into();
            for shard in &self.shards {
                // Sending fails if the shard panicked. `finish` reports the panic.
                let _ = shard.commands.send(Command::Demote(Arc::clone(&processes)));
            }
        }
        demoted
    }

    /// Sets the sums of the blocks that the BPF programs have dropped since the demotion of each process. The first
    /// shard counts them, because it receives the sums at the end of a process.
    pub fn set_dropped(&self, sums: Vec<(Demoted, Amount)>) {
        if let Some(shard) = self.shards.first() {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::SetDropped(sums));
        }
    }

    /// Thins the samples of an image to a level that its patched process has reached: each block that was sampled at a lower
    /// level stays with the probability 1/2 for each level since, and then stands for twice as much. `salt`: salt of the hashes
    /// that decide in the process. Each shard treats later samples at lower levels in the same way, so the levels of an image
    /// must increase, and its salt must stay the same.
    ///
    /// The level 0 states that the process was patched just now. From then on, each shard thins the earlier samples as soon as it
    /// receives a sample at a higher level. If the process was demoted before, the minimum size of its blocks does not apply to
    /// samples.
    pub fn thin(&self, image: ImageId, level: u8, salt: u64) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::Thin { image, level, salt });
        }
    }

    /// Removes the touched pages of an image from its totals, and ignores its later page faults, because its allocations are
    /// sampled instead. Does nothing if the image has ended.
    pub fn leave_out_pages(&self, image: ImageId) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::LeaveOutPages(image));
        }
    }

    /// Applies the events of a reading of the heap profile that a target keeps. All readings of a pid go to the same shard, which
    /// applies them as soon as its source is empty. So the records from before this call are usually applied first. If the end of
    /// the previous image was not applied yet, the reading waits for this end. If the image has ended, the reading is a loss.
    pub fn apply(&self, image: ImageId, events: Vec<Event>) {
        if let Some(shard) = self.shards.get(image.pid.0 as usize % self.shards.len().max(1)) {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::Apply(image, events));
        }
    }

    /// Removes and returns the images that have lost the first reading of their profile: their next reading must have
    /// the whole profile, and the number 0. An image can be returned several times.
    #[must_use]
    pub fn take_refused(&self) -> Vec<ImageId> {
        self.shards.iter().flat_map(|shard| shard.progress.take_refused()).collect()
    }

    /// Ends images after the records of their ends were lost in some rings. A shard first applies all records from
    /// before `now`, the present time. Then it ends the images that still run there. The images of a pid must be in
    /// order. [`Self::take_kept`] returns the images that do not end yet.
    pub fn end_images(&self, images: Vec<(ImageId, ImageEnd, Tick)>, now: Tick) {
        let images: Arc<[_]> = images.into();
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::End(Arc::clone(&images), now));
        }
    }

    /// Removes and returns the images of [`Self::end_images`] that have ended, and that a shard keeps because other
    /// processes share their memory. An image can be returned several times.
    #[must_use]
    pub fn take_kept(&self) -> Vec<ImageId> {
        self.shards.iter().flat_map(|shard| shard.progress.take_kept()).collect()
    }

    /// Makes each shard return free memory of its thread to the kernel, as [`Source::return_memory`] does.
    pub fn return_memory(&self) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::ReturnMemory);
        }
    }

    /// Adds hot and cold bytes to the totals of blocks that [`Shards::finish`] returns.
    pub fn set_touches(&self, touches: &Arc<TouchedProcesses>) {
        for shard in &self.shards {
            // Sending fails if the shard panicked. `finish` reports the panic.
            let _ = shard.commands.send(Command::SetTouches(Arc::clone(touches)));
        }
    }

    /// Ends the trace at `now`, the present time: the shards begin to finish, and end no further interval.
    pub fn stop(&self, now: Tick) {
        for shard in &self.shards {
            // Sending fails if the shard panicked, or if it has this command already. `finish` reports a panic.
            let _ = shard.commands.send(Command::Finish(now));
        }
    }

    /// Applies the remaining events of the sources and returns the merged totals at the time `now`. The sources must no longer
    /// be filled: a shard finishes when its source is empty.
    #[must_use]
    pub fn finish(&mut self, now: Tick) -> RunTotals {
        self.stop(now);
        // The progress is final once the thread is joined.
        let ended: Vec<_> = self.shards.drain(..).map(|shard| (shard.thread.join(), shard.progress)).collect();
        let mut all = RunTotals {
            snapshots: Snapshots::default(),
            ended: Vec::new(),
            deltas: Vec::new(),
            accounts: Vec::new(),
            events: 0,
            calls: CallsBySize::default(),
            delays: Delays::default(),
            demoted: Vec::new(),
            failures: Vec::new(),
        };
        for (shard, (result, progress)) in ended.into_iter().enumerate() {
            match result {
                Ok(totals) => {
                    let ShardTotals { snapshots, ended, deltas, accounts, delays } = totals.unwrap_or_default();
                    all.delays.merge(delays);
                    all.snapshots.merge(snapshots);
                    all.accounts.extend(accounts);
                    all.ended.extend((!ended.is_empty()).then_some((shard, ended)));
                    all.deltas.extend(deltas.into_iter().map(|delta| (shard, delta)));
                }
                Err(panic) => all.failures.push(format!("shard {shard} panicked: {}", message_of(panic.as_ref()))),
            }
            all.demoted.extend(progress.take_demoted());
            let progress = progress.read();
            all.events += progress.events;
            all.calls = all.calls + progress.calls;
        }
        all
    }
}

/// Counts [`LossReason::StackFramesLost`]. The snapshot must contain all shards, since the frames of a stack may be
/// in another shard than its events. It must also contain the stacks that were finished in user space.
pub fn count_missing_frames(snapshot: &mut Snapshot) {
    let lost = snapshot.images.values().map(|image| missing_frames(image, &snapshot.stacks)).sum();
    snapshot.losses.add(LossReason::StackFramesLost, lost);
}

/// Returns the number of events of an image with a stack that has no frames in `stacks`. Merged stacks do not
/// count. If the ledger has removed IDs of merged stacks, lost frames cannot be distinguished from merged ones, and
/// the number is 0.
#[must_use]
pub fn missing_frames(image: &ImageUsage, stacks: &Stacks) -> u64 {
    if image.has_forgotten {
        return 0;
    }
    let missing = image.by_stack.iter().filter(|(key, _)| key.stack.has_frames() && !stacks.contains(key.stack));
    missing.map(|(_, stack)| stack.events()).sum()
}

/// Returns the message of a panic, which is a `&str` or a `String`.
fn message_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => String::from(*text),
        (_, Some(text)) => text.clone(),
        (None, None) => String::from("no message"),
    }
}
