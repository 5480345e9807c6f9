//! Writer of tracks, for traces that are written one interval after another.

use std::io;
use std::time::Duration;

use super::messages::trace_packet::Data;
use super::messages::{CounterDescriptor, TrackDescriptor, TrackEvent, Unit};
use super::packets::Packets;

/// Writer of tracks. The UUIDs of tracks are consecutive numbers from 1.
pub(super) struct TrackWriter<'a> {
    packets: Packets<'a>,
    tracks: u64,
}

impl<'a> TrackWriter<'a> {
    /// Starts a trace.
    pub(super) fn start(out: &'a mut dyn io::Write) -> io::Result<Self> {
        let mut packets = Packets::new(out);
        packets.write_clocks()?;
        Ok(Self { packets, tracks: 0 })
    }

    /// Writes a track, and returns its UUID.
    pub(super) fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<u64> {
        self.tracks += 1;
        let descriptor = TrackDescriptor { uuid: Some(self.tracks), ..descriptor };
        self.packets.write(Duration::ZERO, Data::TrackDescriptor(descriptor))?;
        Ok(self.tracks)
    }

    /// Writes a track that has only a name.
    pub(super) fn named_track(&mut self, name: String) -> io::Result<u64> {
        self.track(TrackDescriptor { name: Some(name), ..TrackDescriptor::default() })
    }

    /// Writes the track of a counter below another track.
    pub(super) fn counter_track(&mut self, parent: u64, name: String, unit: Unit) -> io::Result<u64> {
        self.track(TrackDescriptor {
            parent_uuid: Some(parent),
            name: Some(name),
            counter: Some(CounterDescriptor::of(unit)),
            ..TrackDescriptor::default()
        })
    }

    /// Writes a value of a counter.
    pub(super) fn value(&mut self, uuid: u64, at: Duration, value: f64) -> io::Result<()> {
        self.packets.write(at, Data::TrackEvent(TrackEvent::value(uuid, value)))
    }

    /// Writes an instant on a track.
    pub(super) fn instant(&mut self, uuid: u64, at: Duration, text: String) -> io::Result<()> {
        self.packets.write(at, Data::TrackEvent(TrackEvent::instant(uuid, "memtrace", text)))
    }

    /// Flushes the output.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()
    }
}
