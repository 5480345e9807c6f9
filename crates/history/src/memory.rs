//! A history in memory.
//!
//! It holds the same intervals as a file. Beyond its limit, it merges the same data as a file, in the same order:
//! old intervals, small ended images, and small stacks.

mod changes;
mod images;
mod merging;
mod reading;
mod stored;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use memtrace_model::{
    AccountNumber, ActiveThread, ActivityEvent, Bytes, Frame, ImageId, LeftOut, LockIdentity, Span, StackEnd,
};

use self::images::KnownImages;
use self::stored::StoredInterval;
use super::boundaries::{Boundary, IntervalRow, MarkRow};
use super::exact_totals::ExactTotals;
use super::header::Header;
use super::interval::span_limit::SpanLimit;
use super::interval::{AccountNames, Interval, Location, Locations, PathNumber, RecordedSymbols, Subject};

/// Divisor of the limit: spans of threads can take a quarter of it.
const SPANS: u64 = 4;
/// Divisor of the limit: events of threads can take a sixteenth of it.
const EVENTS: u64 = 16;
const SPAN_BYTES: u64 = size_of::<Span>() as u64;
const EVENT_BYTES: u64 = size_of::<ActivityEvent>() as u64;

/// A history in memory, within a limit.
#[derive(Debug)]
pub struct MemoryBook {
    header: Header,
    limit: Bytes,
    /// Estimated size of data that merges cannot reduce, in bytes: objects, call paths, accounts, threads and
    /// locks. The names of functions do not count, because they arrive at the end of the run, and would cause
    /// merges of all earlier intervals.
    bytes: usize,
    rows: Vec<IntervalRow>,
    /// Contents of the intervals, one for each of `rows`.
    contents: Vec<StoredInterval>,
    /// Sum of the sizes of `contents` in bytes. It is computed again after a merge.
    content_bytes: usize,
    marks: Vec<MarkRow>,
    locations: Locations,
    images: KnownImages,
    account_names: BTreeMap<AccountNumber, AccountNames>,
    identities: Identities,
    spans: SpanLimit,
    events: u64,
    is_complete: bool,
    exact_totals: Option<ExactTotals>,
}

/// Names, threads, locks and stacks, by the ids that spans and events contain.
#[derive(Debug, Default)]
struct Identities {
    names: BTreeMap<u32, String>,
    threads: BTreeMap<u32, ActiveThread>,
    locks: BTreeMap<u32, LockIdentity>,
    stacks: BTreeMap<u32, (PathNumber, StackEnd)>,
}

impl MemoryBook {
    /// Returns an empty history. `limit`: approximate maximum size.
    #[must_use]
    pub fn new(header: Header, limit: Bytes) -> Self {
        Self {
            header,
            limit,
            bytes: 0,
            rows: Vec::new(),
            contents: Vec::new(),
            content_bytes: 0,
            marks: Vec::new(),
            locations: Locations::default(),
            images: KnownImages::default(),
            account_names: BTreeMap::new(),
            identities: Identities::default(),
            spans: SpanLimit::new(limit.0 / SPANS / SPAN_BYTES),
            events: 0,
            is_complete: false,
            exact_totals: None,
        }
    }

    /// Appends the next interval. If the history is too large afterwards, old data is merged.
    pub fn append(&mut self, mut interval: Interval) {
        let id = self.rows.last().map_or(1, |row| row.end().id + 1);
        let row = IntervalRow { id, span: interval.span.clone(), merged: 1 };
        for mark in &interval.marks {
            let is_exact = mark.at == interval.span.end;
            self.marks.push(MarkRow { mark: mark.clone(), boundary: row.end(), is_exact });
            self.marks.sort_by_key(|row| (row.mark.at, row.mark.epoch));
        }
        self.add_locations(&mut interval);
        self.images.add(id, &mut interval);
        self.add_names(&mut interval);
        self.limit_activity(&mut interval);
        self.rows.push(row);
        let content = StoredInterval::new(interval);
        self.content_bytes += content.bytes();
        self.contents.push(content);
        while self.size() > self.limit && self.merge() {
            self.content_bytes = self.contents.iter().map(StoredInterval::bytes).sum();
        }
    }

    /// Marks the history as complete, without an [`ExactTotals`].
    #[cfg(test)]
    pub(super) const fn finish(&mut self) {
        self.is_complete = true;
    }

    /// Returns the approximate size of the history.
    fn size(&self) -> Bytes {
        Bytes((self.bytes + self.images.bytes() + self.content_bytes) as u64)
    }

    fn add_locations(&mut self, interval: &mut Interval) {
        let Locations { objects, paths, symbols } = &mut self.locations;
        for object in interval.objects.drain(..) {
            self.bytes += 128;
            objects.insert(object.number, object.location);
        }
        self.bytes += size_of_val(interval.paths.as_slice());
        for path in interval.paths.drain(..) {
            paths.insert(path);
        }
        for RecordedSymbols { object, offset, frames, .. } in interval.symbols.drain(..) {
            let name = objects.get(&object).and_then(Location::file_name);
            let frames = frames.into_vec().into_iter();
            // The call path has the flag `by_frame_pointer`.
            let frame = |frame| Frame { object: name.clone(), address: None, by_frame_pointer: false, ..frame };
            symbols.insert((object, offset), frames.map(frame).collect());
        }
    }

    fn add_names(&mut self, interval: &mut Interval) {
        let unknown = |image: &ImageId| !self.images.contains(*image);
        // Unknown images have ended and were merged.
        interval.samples.retain(|sample| !matches!(&sample.subject, Subject::Process(image) if unknown(image)));
        for names in interval.account_names.drain(..) {
            self.bytes += 64 + names.names.iter().map(String::len).sum::<usize>();
            match self.account_names.entry(names.number) {
                Entry::Occupied(known) => known.into_mut().merge(names),
                Entry::Vacant(entry) => _ = entry.insert(names),
            }
        }
        let Identities { names, threads, locks, stacks } = &mut self.identities;
        let activity = &mut interval.activity;
        self.bytes += 64 * (activity.names.len() + activity.locks.len() + interval.activity_stacks.len());
        self.bytes += 128 * activity.threads.len();
        names.extend(activity.names.drain(..));
        threads.extend(std::mem::take(&mut activity.threads));
        locks.extend(activity.locks.drain(..));
        stacks.extend(interval.activity_stacks.drain(..).map(|(number, path, end)| (number, (path, end))));
        activity.stacks.clear();
    }

    /// Removes spans and events beyond their maximum numbers: the shortest spans, and the latest events.
    fn limit_activity(&mut self, interval: &mut Interval) {
        let before = self.spans.shorter_than();
        self.spans.add(interval.activity.spans.iter().map(Span::duration));
        interval.activity_left_out += remove_short(&mut interval.activity.spans, &self.spans);
        if self.spans.shorter_than() > before {
            for content in &mut self.contents {
                let left_out = remove_short(&mut content.rest.activity.spans, &self.spans);
                content.rest.activity_left_out += left_out;
            }
            self.content_bytes = self.contents.iter().map(StoredInterval::bytes).sum();
        }
        let events = &mut interval.activity.events;
        let room = (self.limit.0 / EVENTS / EVENT_BYTES).saturating_sub(self.events);
        let kept = events.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        interval.activity_left_out.events += (events.len() - kept) as u64;
        events.truncate(kept);
        self.events += kept as u64;
    }

    /// Returns the contents of the intervals after `from` and up to `to`, each with the end of the interval.
    fn between(&self, from: Boundary, to: Boundary) -> impl Iterator<Item = (Boundary, &StoredInterval)> {
        let ends = self.rows.iter().map(IntervalRow::end);
        ends.zip(&self.contents).filter(move |(end, _)| from < *end && *end <= to)
    }
}

/// Removes spans that are too short. Returns the number of removed spans, and the limit of their duration.
fn remove_short(spans: &mut Vec<Span>, limit: &SpanLimit) -> LeftOut {
    let before = spans.len();
    spans.retain(|span| limit.keeps(span.duration()));
    let removed = (before - spans.len()) as u64;
    let shorter_than = if removed > 0 { limit.shorter_than() } else { Default::default() };
    LeftOut { spans: removed, shorter_than, events: 0 }
}

#[cfg(test)]
mod tests;
