//! Histograms of the durations of allocator calls: one instant for each function, all on one track.

use std::io;
use std::time::Duration;

use memtrace_model::{Activity, CallSums, Log2, Nanoseconds};

use crate::escape;
use crate::perfetto::messages::debug_annotation::Value;
use crate::perfetto::messages::trace_packet::Data;
use crate::perfetto::messages::{DebugAnnotation, TrackDescriptor, TrackEvent};
use crate::perfetto::packets::Packets;

/// UUID of the track of allocator calls.
const TRACK: u64 = 1 << 42;

/// Writes the track, with all instants at `end`, the end of the trace.
pub(super) fn write(activity: &Activity, end: Duration, packets: &mut Packets<'_>) -> io::Result<()> {
    if activity.calls.is_empty() {
        return Ok(());
    }
    let name = Some(String::from("allocator calls"));
    packets.write(
        Duration::ZERO,
        Data::TrackDescriptor(TrackDescriptor { uuid: Some(TRACK), name, ..TrackDescriptor::default() }),
    )?;
    for (name, sums) in &activity.calls {
        let name = activity.names.get(*name as usize).map_or("", String::as_str);
        let instant = TrackEvent::instant(TRACK, "allocator_calls", escape::visible(name));
        packets.write(end, Data::TrackEvent(TrackEvent { debug_annotations: arguments(sums), ..instant }))?;
    }
    Ok(())
}

/// Returns the number of calls, their time, and the number of calls in each bucket of the histogram. A bucket is
/// named by its upper bound.
fn arguments(sums: &CallSums) -> Vec<DebugAnnotation> {
    let argument = |name: String, number| DebugAnnotation {
        name: Some(name),
        value: Some(Value::Unsigned(number)),
        ..DebugAnnotation::default()
    };
    let bucket = |(log2, count): &(Log2, u64)| argument(format!("below {}", end(*log2)), *count);
    let of_all = [argument(String::from("calls"), sums.count), argument(String::from("time_ns"), sums.time.0)];
    of_all.into_iter().chain(sums.histogram.iter().map(bucket)).collect()
}

fn end(log2: Log2) -> Nanoseconds {
    Nanoseconds(2_u64.saturating_pow(log2.number() + 1))
}
