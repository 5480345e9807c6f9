//! Shard: applies the events of one source to one ledger.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use memtrace_model::{
    Amount, CallsBySize, Delta, EndedImage, Event, EventClass, EventKind, ImageEnd, ImageId, LossReason, Snapshots,
    Tick, TouchedProcesses,
};

use super::account_sender::AccountSender;
use super::delays::{DelayMeter, Delays};
use super::delta_sink::DeltaSender;
use super::ended_sink::EndedSink;
use super::progress::{Progress, ShardProgress};
use super::sink::Sinks;
use super::source::{Drained, Source};
use crate::account_changes::{AccountChanges, GroupMember};
use crate::ledger::{BATCH, Demoted, Ledger, Settings, UserOf};

/// Maximum number of records between two checks for commands: a few milliseconds of work.
const DRAIN_LIMIT: usize = 16 * 1024;

/// Maximum number of readings of profiles that wait: until the source is empty, which may not be for a while with many records,
/// and then for the end of an earlier image.
const MAX_WAITING: usize = 64;

/// Records of a source are ordered by time except for differences below this time: a BPF program reads the time before it adds
/// the record.
const MAX_DISORDER: Duration = Duration::from_millis(100);

/// Shortest pause between polls of a source.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between polls of a source. A source with many records wakes its shard early, so a pause can be long
/// without a loss. Each poll costs two context switches, and evicts data of other processes from the caches. The pause
/// can delay the end of the trace.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Command to a running shard.
pub(super) enum Command {
    /// Ends the shard, which returns its result at this time.
    Finish(Tick),
    /// Adds hot and cold bytes to the result.
    SetTouches(Arc<TouchedProcesses>),
    /// Ends the delta at this time. The delta has all events until this time that the shard finds when it next
    /// reads its source.
    Mark(Tick),
    /// Applies these events of a reading of the image's profile when the source is empty.
    Apply(ImageId, Vec<Event>),
    /// Ends these images after the records from before the second time.
    End(Arc<[(ImageId, ImageEnd, Tick)]>, Tick),
    /// Leaves the stacks of new images out of deltas until the image has this age.
    DeferStacks(Duration),
    /// Sends the changes of accounts.
    SendAccounts,
    /// Makes accounts members of groups.
    GroupAccounts(Vec<GroupMember>),
    /// Separates the changes of accounts until this time from later ones.
    SplitAccounts(u64, Tick),
    /// Demotes processes that another shard has demoted.
    Demote(Arc<[Demoted]>),
    /// Sets the sums of the blocks that the BPF programs have dropped.
    SetDropped(Vec<(Demoted, Amount)>),
    /// Thins the samples of an image to a level that its process has reached. `salt`: salt of the hashes of the process.
    Thin { image: ImageId, level: u8, salt: u64 },
    /// Removes the touched pages of an image, and ignores its later page faults.
    LeaveOutPages(ImageId),
    /// Returns free memory of the shard's thread to the kernel.
    ReturnMemory,
}

/// Result of a shard.
#[derive(Debug, Default)]
pub(super) struct ShardTotals {
    pub(super) snapshots: Snapshots,
    /// Ended images that were not sent.
    pub(super) ended: Vec<EndedImage>,
    /// Deltas that were not sent.
    pub(super) deltas: Vec<Delta>,
    /// Changes of accounts that were not sent.
    pub(super) accounts: Vec<(u64, AccountChanges)>,
    pub(super) delays: Delays,
}

pub(super) struct Shard<S> {
    source: S,
    ledger: Ledger,
    /// Decoded events that were not applied yet; empty between two drains.
    batch: Vec<Event>,
    /// Number of recorded allocations by size.
    calls: CallsBySize,
    progress: Arc<ShardProgress>,
    delays: DelayMeter,
    /// Event classes with a snapshot.
    classes: Arc<[EventClass]>,
    /// Index of this shard, and receiver of its ended images.
    sink: Option<(usize, EndedSink)>,
    /// Ended images that were taken from the ledger, and not sent yet.
    unsent: Vec<EndedImage>,
    deltas: Option<DeltaSender>,
    accounts: Option<AccountSender>,
    /// Readings of profiles to apply when the source is empty.
    waiting: Vec<(ImageId, Vec<Event>)>,
    /// Images to end, each with the time of its command.
    to_end: Vec<(ImageId, ImageEnd, Tick, Tick)>,
    /// Time of the latest record.
    latest: Tick,
}

impl<S: Source> Shard<S> {
    pub(super) fn new(
        number: usize,
        source: S,
        settings: Settings,
        classes: Arc<[EventClass]>,
        progress: Arc<ShardProgress>,
        sinks: Sinks,
    ) -> Self {
        let mut ledger = Ledger::new(settings);
        if sinks.deltas.is_some() {
            ledger = ledger.with_deltas();
        }
        Self {
            source,
            ledger,
            batch: Vec::with_capacity(BATCH),
            calls: CallsBySize::default(),
            progress,
            delays: DelayMeter::default(),
            classes,
            sink: sinks.ended.map(|sink| (number, sink)),
            unsent: Vec::new(),
            deltas: sinks.deltas.map(|sink| DeltaSender::new(number, sink)),
            accounts: sinks.accounts.map(AccountSender::new),
            waiting: Vec::new(),
            to_end: Vec::new(),
            latest: Tick::default(),
        }
    }

    /// Applies events until a command asks for the result. Returns `None` if the sender of commands is dropped.
    pub(super) fn run(mut self, commands: &Receiver<Command>) -> Option<ShardTotals> {
        self.source.begin();
        let mut pause = SHORTEST_PAUSE;
        loop {
            if let ControlFlow::Break(end) = self.obey_all(commands) {
                return end.map(|end| self.finish(end));
            }
            let records = self.drain().records;
            if records < DRAIN_LIMIT || self.waiting.len() > MAX_WAITING {
                self.apply_waiting(false);
            }
            let is_empty = records < DRAIN_LIMIT && (self.to_end.is_empty() || !self.source.has_unread());
            self.end_images(is_empty);
            if records < DRAIN_LIMIT {
                end_at_marks(&mut self.deltas, &mut self.accounts, &mut self.ledger, |_| true);
                if let Some(accounts) = &mut self.accounts {
                    accounts.take_at_all_splits(&mut self.ledger);
                }
            }
            self.send_accounts();
            self.send_ended();
            // The work can have taken a while. A command to finish must be seen before an interval ends, because no
            // interval ends after the trace.
            if let ControlFlow::Break(end) = self.obey_all(commands) {
                return end.map(|end| self.finish(end));
            }
            let ended = self.deltas.as_mut().and_then(|deltas| deltas.send(&mut self.ledger));
            if let (Some(until), Some(accounts)) = (ended, &mut self.accounts) {
                accounts.end_interval(until, &mut self.ledger);
            }
            if records >= DRAIN_LIMIT {
                pause = SHORTEST_PAUSE;
                continue;
            }
            pause = next_pause(pause, records);
            self.source.wait(pause);
        }
    }

    /// Executes the waiting commands. Breaks with the end of the trace at a command to finish, and with `None` if
    /// the sender of commands is dropped.
    fn obey_all(&mut self, commands: &Receiver<Command>) -> ControlFlow<Option<Tick>> {
        loop {
            match commands.try_recv() {
                Ok(Command::Finish(now)) => return ControlFlow::Break(Some(now)),
                Ok(Command::SetTouches(touches)) => self.ledger.set_touches(touches),
                Ok(Command::Mark(at)) => {
                    if let Some(deltas) = &mut self.deltas {
                        deltas.add_mark(at);
                    }
                }
                Ok(Command::DeferStacks(age)) => self.ledger.defer_stacks(age),
                Ok(Command::SendAccounts) => {
                    if let Some(accounts) = &mut self.accounts {
                        accounts.request();
                    }
                }
                Ok(Command::GroupAccounts(members)) => self.ledger.group_accounts(members),
                Ok(Command::SplitAccounts(number, at)) => {
                    if let Some(accounts) = &mut self.accounts {
                        accounts.add_split(number, at);
                    }
                }
                Ok(Command::Demote(processes)) => processes.iter().for_each(|&demoted| self.ledger.demote(demoted)),
                Ok(Command::SetDropped(sums)) => {
                    sums.into_iter().for_each(|(demoted, sum)| self.ledger.set_dropped(demoted, sum));
                }
                Ok(Command::Thin { image, level, salt }) => self.ledger.thin(image, level, salt),
                Ok(Command::LeaveOutPages(image)) => self.ledger.leave_out_pages(image),
                Ok(Command::Apply(image, events)) => self.waiting.push((image, events)),
                Ok(Command::End(images, now)) => {
                    self.to_end.extend(images.iter().map(|&(id, end, at)| (id, end, at, now)));
                }
                Ok(Command::ReturnMemory) => self.source.return_memory(),
                Err(TryRecvError::Disconnected) => return ControlFlow::Break(None),
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
            }
        }
    }

    fn finish(mut self, now: Tick) -> ShardTotals {
        while self.drain().records > 0 {
            self.send_ended();
        }
        self.apply_waiting(false);
        self.end_images(true);
        self.apply_waiting(true);
        end_at_marks(&mut self.deltas, &mut self.accounts, &mut self.ledger, |_| true);
        self.send_ended();
        let deltas = self.deltas.take().map(|deltas| deltas.finish(&mut self.ledger, now)).unwrap_or_default();
        let mut ended = std::mem::take(&mut self.unsent);
        if self.sink.is_some() {
            ended.append(&mut self.ledger.take_ended());
        }
        let accounts = self.accounts.take().map(|accounts| accounts.finish(&mut self.ledger, now)).unwrap_or_default();
        let delays = self.delays.delays();
        ShardTotals { snapshots: self.snapshots(now), ended, deltas, accounts, delays }
    }

    fn snapshots(self, now: Tick) -> Snapshots {
        let Some((&last, others)) = self.classes.split_last() else { return Snapshots::default() };
        let mut snapshots: BTreeMap<_, _> =
            others.iter().map(|&class| (class, self.ledger.snapshot(class, now))).collect();
        snapshots.insert(last, self.ledger.finish(last, now));
        Snapshots(snapshots)
    }

    /// Applies the readings of earlier [`Command::Apply`] commands. The others wait for the end of the image before, unless
    /// `is_last` is true.
    fn apply_waiting(&mut self, is_last: bool) {
        if self.waiting.is_empty() {
            return;
        }
        for (image, events) in std::mem::take(&mut self.waiting) {
            match self.ledger.current(image.pid).ordinal.cmp(&image.ordinal) {
                Ordering::Equal => events.iter().for_each(|event| self.apply(event)),
                Ordering::Less if !is_last && self.waiting.len() < MAX_WAITING => self.waiting.push((image, events)),
                Ordering::Less => self.ledger.add_loss(LossReason::ProfileUnread, 1),
                Ordering::Greater => self.ledger.add_loss(LossReason::ProfileLate, 1),
            }
        }
        let refused = self.ledger.take_refused();
        if !refused.is_empty() {
            self.progress.add_refused(refused);
        }
        self.set_progress();
    }

    /// Applies an event of a reading.
    fn apply(&mut self, event: &Event) {
        let is_before = |deltas: &DeltaSender| deltas.is_after_mark(event.tick);
        end_at_marks(&mut self.deltas, &mut self.accounts, &mut self.ledger, is_before);
        if let Some(accounts) = self.accounts.as_mut().filter(|accounts| accounts.is_after_split(event.tick)) {
            accounts.take_at_splits(event.tick, &mut self.ledger);
        }
        self.ledger.apply(event);
    }

    fn set_progress(&self) {
        self.progress.set(Progress {
            events: self.ledger.events(),
            live: self.ledger.live().bytes,
            lost: self.ledger.losses().total(),
            calls: self.calls,
        });
    }

    /// Ends the images of earlier [`Command::End`] commands, and reports the images that the ledger keeps. `is_empty`: true if
    /// the source is empty. Otherwise, an image ends only if all records from before its command are applied.
    fn end_images(&mut self, is_empty: bool) {
        let latest = self.latest.since_start();
        let is_due = |asked: Tick| is_empty || latest > asked.since_start() + MAX_DISORDER;
        let images: Vec<_> = self.to_end.extract_if(.., |&mut (.., asked)| is_due(asked)).collect();
        for &(id, end, at, _) in &images {
            self.ledger.end_if_running(id, end, at);
        }
        let kept: Vec<_> = images.into_iter().map(|(id, ..)| id).filter(|id| self.ledger.keeps(*id)).collect();
        if !kept.is_empty() {
            self.progress.add_kept(kept);
        }
    }

    /// Sends the images that have ended. While the sink is full, images that end later stay in the ledger, which
    /// bounds their number.
    fn send_ended(&mut self) {
        if self.sink.is_none() {
            return;
        }
        if self.unsent.is_empty() {
            // The accounts of an image arrive before the image.
            if !self.send_accounts() {
                return;
            }
            self.unsent = self.ledger.take_ended();
        }
        if let Some((number, sink)) = self.sink.as_ref().filter(|_| !self.unsent.is_empty()) {
            sink.try_send(*number, &mut self.unsent);
        }
    }

    /// Sends the changes of accounts, if they are due. Returns false if the sink has no room.
    fn send_accounts(&mut self) -> bool {
        self.accounts.as_mut().is_none_or(|accounts| accounts.send(&mut self.ledger))
    }

    fn drain(&mut self) -> Drained {
        let begin = Instant::now();
        self.delays.begin(begin, self.source.waited());
        let mut batch = std::mem::take(&mut self.batch);
        let mut latest = Tick(0);
        let drained = self.source.drain(DRAIN_LIMIT, |event| {
            if self.deltas.as_ref().is_some_and(|deltas| deltas.is_after_mark(event.tick)) {
                self.ledger.apply_all(&mut batch);
                let is_before = |deltas: &DeltaSender| deltas.is_after_mark(event.tick);
                end_at_marks(&mut self.deltas, &mut self.accounts, &mut self.ledger, is_before);
            }
            if let Some(accounts) = self.accounts.as_mut().filter(|accounts| accounts.is_after_split(event.tick)) {
                self.ledger.apply_all(&mut batch);
                accounts.take_at_splits(event.tick, &mut self.ledger);
            }
            if let EventKind::Alloc { size, .. } = event.kind {
                self.calls.count(size, 1);
            }
            latest = event.tick;
            batch.push(event);
            if batch.len() >= BATCH {
                self.ledger.apply_all(&mut batch);
                compare_shares(&mut self.ledger, &self.progress, latest, S::user_of);
            }
        });
        self.ledger.apply_all(&mut batch);
        compare_shares(&mut self.ledger, &self.progress, latest, S::user_of);
        self.batch = batch;
        self.latest = self.latest.max(latest);
        self.ledger.add_loss(LossReason::BadRecord, drained.bad);
        self.set_progress();
        self.delays.end(begin, Instant::now(), self.source.waited(), drained.records);
        drained
    }
}

/// Demotes processes if the ledger is nearly full.
fn compare_shares(ledger: &mut Ledger, progress: &ShardProgress, now: Tick, user_of: UserOf) {
    if ledger.must_compare_shares() {
        progress.add_demoted(ledger.compare_shares(now, user_of));
    }
}

/// Ends a delta at each mark as long as `is_due` returns true, and takes the changes of accounts at the same time.
fn end_at_marks(
    deltas: &mut Option<DeltaSender>,
    accounts: &mut Option<AccountSender>,
    ledger: &mut Ledger,
    is_due: impl Fn(&DeltaSender) -> bool,
) {
    let Some(deltas) = deltas else { return };
    while is_due(deltas)
        && let Some(until) = deltas.end_at_mark(ledger)
    {
        if let Some(accounts) = accounts {
            accounts.end_interval(until, ledger);
        }
    }
}

/// Returns the next pause: longer after few records, shorter after many.
fn next_pause(pause: Duration, records: usize) -> Duration {
    let next = match records {
        0..4096 => pause * 2,
        4096..DRAIN_LIMIT => pause,
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
        assert_eq!(next_pause(pause, 5000), LONGEST_PAUSE);
        for _ in 0..10 {
            pause = next_pause(pause, DRAIN_LIMIT);
        }
        assert_eq!(pause, SHORTEST_PAUSE);
    }
}
