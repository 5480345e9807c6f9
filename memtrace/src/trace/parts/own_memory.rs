//! Memory of memtrace itself, compared with its limit during a run.

use std::time::{Duration, Instant};

use memtrace_model::Bytes;

use crate::run_kit::observer::Observer;
use crate::run_kit::own_allocator;
use crate::trace::context::Context;
use crate::trace::cost::own_rss;
use crate::trace::part::Part;

/// Time between two readings of the RSS.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Minimum time between two returns of memory while the RSS is near the limit. A return delays each thread, because the
/// allocator inspects all memory of the thread.
const RETURN_EVERY: Duration = Duration::from_secs(60);

/// Minimum time between two returns of memory while the RSS is above the limit.
const RETURN_EVERY_ABOVE: Duration = Duration::from_secs(5);

/// Returns free memory to the kernel if the RSS of memtrace is near its limit. Tables and files that nothing uses are
/// removed at their own limits.
pub(super) struct OwnMemory {
    limit: Bytes,
    /// Time of the last reading.
    read: Instant,
    /// Time of the last return of memory; `None` before the first one.
    returned: Option<Instant>,
}

impl OwnMemory {
    pub(super) fn start(limit: Bytes) -> Self {
        Self { limit, read: Instant::now(), returned: None }
    }

    /// Returns true if the RSS must be read now.
    fn must_read(&mut self, now: Instant) -> bool {
        let must = now.duration_since(self.read) >= READ_EVERY;
        if must {
            self.read = now;
        }
        must
    }

    /// Returns true if memory must be returned now: the RSS is above 15/16 of the limit, and the last return is long
    /// ago.
    fn must_return(&mut self, rss: Bytes, now: Instant) -> bool {
        let pause = if rss > self.limit { RETURN_EVERY_ABOVE } else { RETURN_EVERY };
        let is_recent = self.returned.is_some_and(|returned| now.duration_since(returned) < pause);
        let must = rss.0 > self.limit.0 / 16 * 15 && !is_recent;
        if must {
            self.returned = Some(now);
        }
        must
    }

    /// Returns a note for the report if the RSS at the end of the trace exceeds the limit.
    fn note(&self, rss: Bytes) -> Option<String> {
        let limit = self.limit;
        (rss > limit).then(|| {
            format!("at the end of the trace, the RSS of memtrace was {rss}, above its memory limit of {limit}")
        })
    }
}

impl Part for OwnMemory {
    fn tick(&mut self, context: &mut Context, _: &mut dyn Observer) {
        let now = Instant::now();
        let Some(rss) = self.must_read(now).then(own_rss).flatten() else { return };
        if self.must_return(rss, now) {
            log::info!("the RSS of memtrace is {rss}, its limit {}: free memory is returned", self.limit);
            own_allocator::trim();
            context.shards.return_memory();
        }
    }

    fn close(&mut self, context: &mut Context) {
        let note = own_rss().and_then(|rss| self.note(rss));
        context.targets.notes.extend(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns true for each reading at which memory is returned. A reading is a time in seconds, and the RSS in MiB.
    fn returns<const N: usize>(readings: [(u64, u64); N]) -> [bool; N] {
        let mut memory = OwnMemory::start(Bytes(256 * MIB));
        let start = memory.read;
        readings.map(|(at, rss)| memory.must_return(Bytes(rss * MIB), start + Duration::from_secs(at)))
    }

    #[test]
    fn the_rss_is_read_every_second() {
        let mut memory = OwnMemory::start(Bytes(256 * MIB));
        let start = memory.read;
        let is_read =
            [0, 900, 1000, 1100, 1900, 2000, 9000].map(|at| memory.must_read(start + Duration::from_millis(at)));
        assert_eq!(is_read, [false, false, true, false, false, true, true]);
    }

    #[test]
    fn memory_is_returned_near_the_limit_once_a_minute() {
        let returns =
            returns([(5, 100), (10, 240), (15, 241), (20, 256), (74, 250), (75, 241), (200, 240), (205, 250)]);
        assert_eq!(returns, [false, false, true, false, false, true, false, true]);
    }

    #[test]
    fn memory_is_returned_more_often_above_the_limit() {
        let returns = returns([(5, 241), (6, 257), (9, 257), (10, 257), (12, 300), (15, 300), (20, 256), (69, 256)]);
        assert_eq!(returns, [true, false, false, true, false, true, false, false]);
    }

    #[test]
    fn an_rss_above_the_limit_at_the_end_is_noted() {
        let memory = OwnMemory::start(Bytes(256 * MIB));
        assert_eq!(memory.note(Bytes(256 * MIB)), None);
        assert_eq!(
            memory.note(Bytes(298 * MIB)).as_deref(),
            Some("at the end of the trace, the RSS of memtrace was 298.00 MiB, above its memory limit of 256.00 MiB")
        );
    }
}
