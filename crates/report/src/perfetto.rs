//! Traces for Perfetto: packets of `perfetto_trace.proto`. They have counters of the memory of each process over
//! time, instants for marks, OOM kills and ends of processes, activity of threads, and heap profiles at the end and
//! at earlier moments.

mod accounts;
mod activity;
mod heap_profile;
mod messages;
mod packets;
mod processes;
mod series;
mod threads;
mod track_writer;
mod tracks;

use std::io;

use memtrace_model::Profile;

pub use self::accounts::AccountTrace;
pub use self::threads::ThreadTrace;

use self::heap_profile::HeapProfile;
use self::messages::trace_packet::Data;
use self::packets::{Packets, nanoseconds};
use self::tracks::Tracks;

/// Writes the packets. Their times count from the start of tracing.
pub(super) fn write(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let mut packets = Packets::new(out);
    packets.write_clocks()?;
    Tracks::new(profile).write(&mut packets)?;
    if let Some(activity) = &profile.run.activity {
        activity::write(activity, profile.shown_time().end, &mut packets)?;
    }
    if profile.run.class.counts_stalls() {
        return Ok(());
    }
    // The viewer shows differences between consecutive profiles. Each packet has all of its frames, because the
    // viewer forgets frames at the end of a packet (`HeapProfileTracker::FinalizeProfile` of Perfetto).
    let last = (profile.shown_time().end, profile);
    for (at, profile) in profile.earlier.iter().map(|(at, earlier)| (*at, earlier)).chain([last]) {
        let heap = HeapProfile::new(profile).into_packet(nanoseconds(at));
        packets.write(at, Data::ProfilePacket(heap))?;
    }
    Ok(())
}
