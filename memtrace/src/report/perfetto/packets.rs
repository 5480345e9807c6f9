//! Packets of a trace.

use std::io;
use std::time::Duration;

use prost::Message as _;

use super::messages::TracePacket;
use super::messages::trace_packet::Data;

/// Writes packets one after another.
pub(super) struct Packets<'a> {
    out: &'a mut dyn io::Write,
    buffer: Vec<u8>,
}

impl<'a> Packets<'a> {
    pub(super) const fn new(out: &'a mut dyn io::Write) -> Self {
        Self { out, buffer: Vec::new() }
    }

    pub(super) fn write(&mut self, at: Duration, data: Data) -> io::Result<()> {
        /// Tag of the field `packet` of `Trace`.
        const PACKET: u8 = 1 << 3 | 2;
        /// All packets are of one writer.
        const SEQUENCE: u32 = 1;
        let packet = TracePacket {
            timestamp: Some(nanoseconds(at)),
            trusted_packet_sequence_id: Some(SEQUENCE),
            data: Some(data),
        };
        self.buffer.clear();
        self.buffer.push(PACKET);
        packet.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
