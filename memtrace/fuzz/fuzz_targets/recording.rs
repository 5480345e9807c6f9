//! Reads arbitrary bytes as a recording. Reading must not panic, and totals must be readable or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memtrace_model::EventClass;
use memtrace_history::{Book as _, Boundary, Recording};

fuzz_target!(|bytes: &[u8]| {
    let Ok(recording) = Recording::from_bytes(bytes) else { return };
    let end = recording.end();
    let _ = recording.totals(Boundary::START, end);
    let bounds: Vec<_> = recording.intervals().iter().map(|interval| interval.end()).collect();
    let _ = recording.live_changes(&bounds);
    let _ = recording.totals_in_parts(&bounds);
    let _ = recording.images(end);
    let _ = recording.merged_images(Boundary::START, end);
    let _ = recording.oom_kills(end);
    let _ = recording.facts(end);
    let _ = recording.locations();
    let _ = recording.amounts_over_time(EventClass::Heap);
});
