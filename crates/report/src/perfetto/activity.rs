//! Activity of threads: spans and events on a track for each thread, and tracks of locks.

mod annotations;
mod argument_names;
mod calls;
mod locks;
mod texts;

use std::io;
use std::time::Duration;

use memtrace_model::{Activity, ActivityEvent, Span, SpanKind};

use self::annotations::Annotations;
use self::locks::LockTracks;
use self::texts::Texts;
use super::messages::trace_packet::Data;
use super::messages::{EventType, ThreadDescriptor, TrackDescriptor, TrackEvent};
use super::packets::Packets;
use crate::activity_names::ActivityNames;
use crate::escape;

/// UUID of the track of the first thread.
const THREADS: u64 = 1 << 40;

/// Writes the tracks of threads, locks and allocator calls. The tracks of their processes must be written before.
/// `end`: end of the trace.
pub(super) fn write(activity: &Activity, end: Duration, packets: &mut Packets<'_>) -> io::Result<()> {
    calls::write(activity, end, packets)?;
    if activity.threads.is_empty() {
        return Ok(());
    }
    let texts = Texts::of(activity);
    packets.write_interned(texts.data(activity))?;
    let names = ActivityNames::new(activity);
    let annotations = Annotations::new(activity, &texts, &names);
    write_threads(activity, packets)?;
    let on_threads = |span: &&Span| span.kind != SpanKind::LockHold;
    for spans in activity.spans.chunk_by(|one, next| one.thread == next.thread) {
        write_spans(spans.iter().filter(on_threads), &annotations, packets)?;
    }
    for event in &activity.events {
        packets.write_event(event.at, instant(event, &annotations))?;
    }
    LockTracks::of(activity).write(activity, &names, &annotations, packets)
}

/// Writes a track for each thread, with its start and exit.
fn write_threads(activity: &Activity, packets: &mut Packets<'_>) -> io::Result<()> {
    for (number, thread) in (0..).zip(&activity.threads) {
        let uuid = uuid_of(number);
        let descriptor = ThreadDescriptor {
            pid: Some(thread.pid.0.cast_signed()),
            tid: Some(thread.tid.0.into()),
            thread_name: Some(escape::visible(thread.name.raw())),
        };
        let track = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(thread.pid.0.into()),
            thread: Some(descriptor),
            ..TrackDescriptor::default()
        };
        packets.write(Duration::ZERO, Data::TrackDescriptor(track))?;
        for (at, name) in [(thread.start, "start"), (thread.end, "exit")] {
            if let Some(at) = at {
                let instant = TrackEvent::instant(uuid, "thread", String::from(name));
                packets.write_event(at, instant)?;
            }
        }
    }
    Ok(())
}

/// Writes the spans of a thread, which nest. Perfetto matches an end to the last open span of the track.
fn write_spans<'a>(
    spans: impl Iterator<Item = &'a Span>,
    annotations: &Annotations<'_>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let mut begun: Vec<&Span> = Vec::new();
    for span in spans {
        // A span that begins exactly at the end of another one is not nested in it.
        while let Some(ended) = begun.pop_if(|last| last.end <= span.begin) {
            write_end(ended, packets)?;
        }
        let event = TrackEvent {
            kind: Some(EventType::SliceBegin.into()),
            track_uuid: Some(uuid_of(span.thread)),
            category_iids: vec![Texts::category_of(span.kind)],
            name_iid: Some(Texts::name_of(span.name)),
            debug_annotations: annotations.of_span(span),
            ..TrackEvent::default()
        };
        packets.write_event(span.begin, event)?;
        begun.push(span);
    }
    begun.into_iter().rev().try_for_each(|span| write_end(span, packets))
}

fn write_end(span: &Span, packets: &mut Packets<'_>) -> io::Result<()> {
    packets.write_event(span.end, TrackEvent::end(uuid_of(span.thread)))
}

fn instant(event: &ActivityEvent, annotations: &Annotations<'_>) -> TrackEvent {
    TrackEvent {
        kind: Some(EventType::Instant.into()),
        track_uuid: Some(uuid_of(event.thread)),
        category_iids: vec![Texts::EVENT],
        name_iid: Some(Texts::name_of(event.name)),
        debug_annotations: annotations.of_event(event),
        ..TrackEvent::default()
    }
}

/// Returns the UUID of the track of a thread.
fn uuid_of(thread: u32) -> u64 {
    THREADS + u64::from(thread)
}
