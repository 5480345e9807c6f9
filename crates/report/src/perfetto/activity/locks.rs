//! Tracks of locks: the threads that hold them, and the number of threads that wait for them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use memtrace_model::{Activity, LockRow, Nanoseconds, Span, SpanKind};

use super::annotations::Annotations;
use super::texts::Texts;
use crate::activity_names::ActivityNames;
use crate::escape;
use crate::perfetto::messages::trace_packet::Data;
use crate::perfetto::messages::{CounterDescriptor, EventType, TrackDescriptor, TrackEvent, Unit};
use crate::perfetto::packets::Packets;

/// UUIDs of tracks of locks are above this number.
const LOCKS: u64 = 1 << 41;

/// Spans of the locks that have tracks, by index of the lock in the activity.
pub(super) struct LockTracks<'a> {
    locks: BTreeMap<u32, LockSpans<'a>>,
    /// Number of tracks that were written.
    tracks: u64,
}

/// Spans of a lock.
#[derive(Default)]
struct LockSpans<'a> {
    holds: Vec<&'a Span>,
    waits: Vec<&'a Span>,
}

impl<'a> LockTracks<'a> {
    pub(super) fn of(activity: &'a Activity) -> Self {
        let mut locks: BTreeMap<u32, LockSpans<'a>> = BTreeMap::new();
        for span in &activity.spans {
            let Some(lock) = span.lock else { continue };
            let spans = locks.entry(lock).or_default();
            match span.kind {
                SpanKind::LockHold => spans.holds.push(span),
                _ => spans.waits.push(span),
            }
        }
        locks.retain(|lock, spans| activity.locks[*lock as usize].name.is_some() || spans.is_contended());
        Self { locks, tracks: 0 }
    }

    pub(super) fn write(
        mut self,
        activity: &Activity,
        names: &ActivityNames<'_>,
        annotations: &Annotations<'_>,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        for (lock, mut spans) in std::mem::take(&mut self.locks) {
            let lock = &activity.locks[lock as usize];
            let track = TrackDescriptor {
                parent_uuid: Some(lock.pid.0.into()),
                name: Some(title(lock, names)),
                ..TrackDescriptor::default()
            };
            let first = self.write_track(track.clone(), packets)?;
            spans.holds.sort_by_key(|hold| hold.begin);
            // Holds of a lock can overlap: several readers hold a lock at once, and the end of a hold can be observed
            // after the begin of the next one. Spans of one track must nest, so overlapping holds are on further
            // tracks with the same name, which the viewer draws as one track.
            let mut lanes = vec![(first, Nanoseconds(0))];
            for hold in spans.holds {
                let lane = match lanes.iter().position(|(_, end)| *end <= hold.begin) {
                    Some(lane) => lane,
                    None => {
                        lanes.push((self.write_track(track.clone(), packets)?, Nanoseconds(0)));
                        lanes.len() - 1
                    }
                };
                write_hold(lanes[lane].0, hold, activity, annotations, packets)?;
                lanes[lane].1 = hold.end;
            }
            if !spans.waits.is_empty() {
                self.write_waiters(first, &spans.waits, packets)?;
            }
        }
        Ok(())
    }

    /// Writes a counter track with the number of waiting threads over time.
    fn write_waiters(&mut self, parent: u64, waits: &[&Span], packets: &mut Packets<'_>) -> io::Result<()> {
        let counter = TrackDescriptor {
            parent_uuid: Some(parent),
            name: Some(String::from("waiters")),
            counter: Some(CounterDescriptor::of(Unit::Count)),
            ..TrackDescriptor::default()
        };
        let uuid = self.write_track(counter, packets)?;
        let mut changes: BTreeMap<Nanoseconds, i64> = BTreeMap::new();
        for wait in waits {
            *changes.entry(wait.begin).or_default() += 1;
            if !wait.is_open {
                *changes.entry(wait.end).or_default() -= 1;
            }
        }
        let mut waiters = 0;
        for (at, change) in changes.into_iter().filter(|(_, change)| *change != 0) {
            waiters += change;
            packets.write_event(at, TrackEvent::integer(uuid, waiters))?;
        }
        Ok(())
    }

    fn write_track(&mut self, track: TrackDescriptor, packets: &mut Packets<'_>) -> io::Result<u64> {
        self.tracks += 1;
        let uuid = LOCKS + self.tracks;
        packets.write(Duration::ZERO, Data::TrackDescriptor(TrackDescriptor { uuid: Some(uuid), ..track }))?;
        Ok(uuid)
    }
}

impl LockSpans<'_> {
    /// Returns true if the lock has several waits, or a wait with a known holder.
    fn is_contended(&self) -> bool {
        self.waits.len() > 1 || self.waits.iter().any(|wait| wait.holder.is_some())
    }
}

/// Writes a hold as a span with the name of the holding thread.
fn write_hold(
    uuid: u64,
    hold: &Span,
    activity: &Activity,
    annotations: &Annotations<'_>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let event = TrackEvent {
        kind: Some(EventType::SliceBegin.into()),
        track_uuid: Some(uuid),
        category_iids: vec![Texts::category_of(hold.kind)],
        name: Some(escape::visible(activity.threads[hold.thread as usize].name.raw())),
        debug_annotations: annotations.of_span(hold),
        ..TrackEvent::default()
    };
    packets.write_event(hold.begin, event)?;
    packets.write_event(hold.end, TrackEvent::end(uuid))
}

/// Returns the title of a track: `cache lock (0x7f00deadb000)`.
fn title(lock: &LockRow, names: &ActivityNames<'_>) -> String {
    let name = names.lock(lock).unwrap_or_else(|| String::from("futex"));
    format!("{name} ({})", lock.address)
}
