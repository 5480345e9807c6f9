//! Intervals: everything that changed within a time range.

mod accounts;
pub(super) mod activity;
mod changes;
mod images;
mod locations;
mod samples;
pub(super) mod span_limit;
mod threads;

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::ops::Range;
use std::time::Duration;

use memtrace_model::{ActivityChanges, CallSums, ImageId, LeftOut, Losses, OomKill, StackEnd};
use rustc_hash::FxHashMap;

use self::activity::{MAX_WAITING_EVENTS, MAX_WAITING_SPANS};
use self::threads::remove_short_threads;

pub use self::accounts::{AccountNames, RecordedAccount};
pub use self::activity::RecordedActivity;
pub use self::changes::{Change, Detail, DetailKind, ImageChange, ImageValue, StallChange, TotalKey};
pub use self::images::RecordedImage;
pub use self::locations::{
    FramesByOffset, Location, Locations, ObjectNumber, PathNumber, PathRows, RecordedObject, RecordedPath,
    RecordedSymbols,
};
pub(super) use self::samples::MACHINE_START;
pub use self::samples::{Fact, FactValue, Sample, Subject};
pub use self::threads::{RecordedProcessUsage, RecordedThread, RecordedThreadUsage, ThreadNumber};

/// Changes within a time range, and values at its end. Intervals are sent in order, without gaps or overlaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Start and end of the interval, since the start of the trace.
    pub span: Range<Duration>,
    /// New objects.
    pub objects: Vec<RecordedObject>,
    /// New call paths, each after the path of its callers.
    pub paths: Vec<RecordedPath>,
    /// New names: the frames at offsets in objects.
    pub symbols: Vec<RecordedSymbols>,
    /// New images, and images with changed facts.
    pub images: Vec<RecordedImage>,
    /// Ended images without changes in later intervals. The writer removes the state of these images.
    pub finished: Vec<ImageId>,
    /// OOM kills.
    pub oom_kills: Vec<OomKill>,
    /// Changes of totals by stack, each stack at most once.
    pub changes: Vec<Change>,
    /// Changes of numbers that few stacks have, such as buckets of histograms.
    pub details: Vec<Detail>,
    /// Changes of numbers that belong to an image and to none of its stacks.
    pub image_changes: Vec<ImageChange>,
    /// Changes of the stalls of images.
    pub stalls: Vec<StallChange>,
    /// Losses within the interval.
    pub losses: Losses,
    /// Values at the end of the interval.
    pub samples: Vec<Sample>,
    /// Facts that reports show.
    pub facts: Vec<Fact>,
    /// New accounts, and accounts with other names.
    pub account_names: Vec<AccountNames>,
    /// Accounts that have changed.
    pub accounts: Vec<RecordedAccount>,
    /// Monitored threads that are new, have another name, or have ended.
    pub monitored: Vec<RecordedThread>,
    /// Usage of monitored threads, each thread at most once.
    pub threads: Vec<RecordedThreadUsage>,
    /// Usage of monitored processes, each process at most once.
    pub process_usage: Vec<RecordedProcessUsage>,
    /// Activity of threads. Its raw stacks are not stored; [`Self::activity_stacks`] has their call paths.
    pub activity: ActivityChanges,
    /// New stacks of waits: id in the activity, call path, and end of the walk.
    pub activity_stacks: Vec<(u32, PathNumber, StackEnd)>,
    /// Numbers of spans and events that were left out of the activity.
    pub activity_left_out: LeftOut,
    /// Calls of allocator functions within the interval, by the id of the function's name.
    pub calls: BTreeMap<u32, CallSums>,
    /// Marks. A mark ends an interval, so that the totals at the mark are exact.
    pub marks: Vec<Mark>,
}

/// A mark of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Time since the start of the trace.
    pub at: Duration,
    /// Text of the mark. No two marks have the same text.
    pub text: String,
    /// Epoch that starts at the mark. The first epoch, 0, starts with the trace.
    pub epoch: u32,
}

impl Interval {
    /// Appends the next interval.
    pub fn merge(&mut self, next: Self) {
        self.span.end = next.span.end;
        self.objects.extend(next.objects);
        self.paths.extend(next.paths);
        self.finished.extend(next.finished);
        self.oom_kills.extend(next.oom_kills);
        self.losses.merge(&next.losses);
        self.marks.extend(next.marks);
        let offset_of = |symbols: &RecordedSymbols| (symbols.object, symbols.offset);
        replace(&mut self.symbols, next.symbols, offset_of);
        replace(&mut self.images, next.images, |image| image.id);
        replace(&mut self.samples, next.samples, |sample| (sample.subject, sample.counter.clone()));
        add(&mut self.account_names, next.account_names, |account| account.number, AccountNames::merge);
        add(&mut self.accounts, next.accounts, |account| account.number, RecordedAccount::merge);
        replace(&mut self.monitored, next.monitored, |thread| thread.number);
        add(&mut self.threads, next.threads, |row| row.thread, RecordedThreadUsage::merge);
        add(&mut self.process_usage, next.process_usage, |row| row.image, RecordedProcessUsage::merge);
        remove_short_threads(self.span.start, &mut self.monitored, &mut self.threads);
        replace(&mut self.facts, next.facts, |fact| (fact.topic.clone(), fact.item.clone()));
        self.activity.append(next.activity);
        replace(&mut self.activity_stacks, next.activity_stacks, |(number, ..)| *number);
        self.activity_left_out += next.activity_left_out;
        activity::add_calls(&mut self.calls, &next.calls);
        activity::bound(&mut self.activity, &mut self.activity_left_out, MAX_WAITING_SPANS, MAX_WAITING_EVENTS);
        add(&mut self.changes, next.changes, |change| change.key, |ours, theirs| ours.usage += theirs.usage);
        add(
            &mut self.details,
            next.details,
            |detail| (detail.key, detail.kind, detail.index),
            |ours, theirs| {
                ours.value = ours.value.wrapping_add(theirs.value);
            },
        );
        let key_of = |change: &ImageChange| (change.image, change.class, change.kind, change.index);
        add(&mut self.image_changes, next.image_changes, key_of, |ours, theirs| {
            ours.value = ours.kind.add(ours.value, theirs.value);
        });
        add(
            &mut self.stalls,
            next.stalls,
            |stall| (stall.image, stall.key),
            |ours, theirs| {
                ours.stats.merge(&theirs.stats);
            },
        );
    }

    /// Returns the approximate number of rows with measured values. The time of a merge grows with this number.
    pub(super) fn rows(&self) -> usize {
        let numbers = self.changes.len() + self.details.len() + self.image_changes.len() + self.stalls.len();
        let usage = self.samples.len() + self.accounts.len() + self.threads.len() + self.process_usage.len();
        let lists = self.activity.spans.len() + self.activity.events.len();
        numbers + usage + lists + self.activity.totals.len() + self.activity.lock_totals.len() + self.calls.len()
    }

    /// Returns the mark at the end of the interval, if the interval ends at a mark.
    pub(super) fn mark(&self) -> Option<&Mark> {
        self.marks.last().filter(|mark| mark.at == self.span.end)
    }
}

/// Appends `theirs` to `ours`. An item of `theirs` replaces the item of `ours` with the same key.
fn replace<T, K: Eq + Hash>(ours: &mut Vec<T>, theirs: Vec<T>, key_of: impl Fn(&T) -> K) {
    add(ours, theirs, key_of, |ours, theirs| *ours = theirs);
}

/// Appends `theirs` to `ours`. `sum` adds an item of `theirs` to the item of `ours` with the same key.
fn add<T, K: Eq + Hash>(ours: &mut Vec<T>, theirs: Vec<T>, key_of: impl Fn(&T) -> K, mut sum: impl FnMut(&mut T, T)) {
    if ours.is_empty() {
        *ours = theirs;
        return;
    }
    let mut known: FxHashMap<K, usize> = ours.iter().enumerate().map(|(index, item)| (key_of(item), index)).collect();
    for item in theirs {
        match known.entry(key_of(&item)) {
            Entry::Occupied(entry) => sum(&mut ours[*entry.get()], item),
            Entry::Vacant(entry) => {
                entry.insert(ours.len());
                ours.push(item);
            }
        }
    }
}
