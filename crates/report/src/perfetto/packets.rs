//! Encodes and writes the packets of a trace.

use std::io;
use std::time::Duration;

use memtrace_model::Nanoseconds;
use prost::Message as _;

use super::messages::trace_packet::Data;
use super::messages::{Clock, ClockSnapshot, InternedData, TracePacket, TrackEvent};

/// Writes packets one after another.
pub(super) struct Packets<'a> {
    out: &'a mut dyn io::Write,
    buffer: Vec<u8>,
}

impl<'a> Packets<'a> {
    pub(super) const fn new(out: &'a mut dyn io::Write) -> Self {
        Self { out, buffer: Vec::new() }
    }

    /// Writes the first packet: a clock snapshot with two clocks at 0. Timestamps of packets are boot times, and
    /// timestamps of heap profiles are coarse monotonic times. trace_processor drops data with a clock that it cannot
    /// relate to the boot time.
    pub(super) fn write_clocks(&mut self) -> io::Result<()> {
        /// `BUILTIN_CLOCK_BOOTTIME` and `BUILTIN_CLOCK_MONOTONIC_COARSE` (builtin_clock.proto).
        const CLOCKS: [u32; 2] = [6, 4];
        let clocks = CLOCKS.map(|id| Clock { clock_id: Some(id), timestamp: Some(0) }).to_vec();
        self.write(Duration::ZERO, Data::ClockSnapshot(ClockSnapshot { clocks }))
    }

    pub(super) fn write(&mut self, at: Duration, data: Data) -> io::Result<()> {
        let sequence_flags = match &data {
            Data::ClockSnapshot(_) => Some(1),
            Data::TrackEvent(event) if event.is_interned() => Some(2),
            _ => None,
        };
        self.write_packet(TracePacket {
            timestamp: Some(nanoseconds(at)),
            sequence_flags,
            data: Some(data),
            ..TracePacket::default()
        })
    }

    /// Writes an event at a time since the start of tracing.
    pub(super) fn write_event(&mut self, at: Nanoseconds, event: TrackEvent) -> io::Result<()> {
        self.write(Duration::from_nanos(at.0), Data::TrackEvent(event))
    }

    /// Writes interned texts, which all later packets can refer to.
    pub(super) fn write_interned(&mut self, texts: InternedData) -> io::Result<()> {
        self.write_packet(TracePacket { interned_data: Some(texts), ..TracePacket::default() })
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn write_packet(&mut self, packet: TracePacket) -> io::Result<()> {
        /// Tag of the field `packet` of `Trace`.
        const PACKET: u8 = 1 << 3 | 2;
        /// ID of the only packet sequence: all packets have one writer.
        const SEQUENCE: u32 = 1;
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        self.buffer.clear();
        self.buffer.push(PACKET);
        packet.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
