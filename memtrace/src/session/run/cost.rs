//! What memtrace itself takes, and the clock that it shares with the kernel half.

use std::mem::MaybeUninit;
use std::time::Duration;

use crate::kernel::ProgramTime;
use crate::model::{Bytes, Cost, Pid, ProgramCost};
use crate::procfs;

/// What the run has cost until now.
pub(super) fn so_far(events: u64, nested: u64, programs: &ProgramTime, allocations: u64) -> Cost {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole rusage.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a valid rusage, whatever the call did.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Cost {
        events,
        nested,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        // What getrusage(2) says of it may be what this process was before it became memtrace (`setmax_mm_hiwater_rss` at exec).
        peak_rss: procfs::counted(Pid(std::process::id())).map_or(Bytes(0), |counted| counted.peak),
        programs: in_all(programs, events, allocations),
    }
}

/// What the programs took in all: as much a run as while they were timed. An event is a hit, and an allocation one more, its
/// return; calls that failed are left out.
fn in_all(programs: &ProgramTime, events: u64, allocations: u64) -> Option<ProgramCost> {
    if programs.runs == 0 {
        return None;
    }
    let hits = events.saturating_add(allocations);
    Some(ProgramCost { hits, time: programs.time.mul_f64(hits as f64 / programs.runs as f64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_timed_for_a_part_stands_for_the_whole() {
        let part = ProgramTime { runs: 1000, time: Duration::from_micros(400) };
        let cost = in_all(&part, 6000, 4000);
        assert_eq!(cost, Some(ProgramCost { hits: 10_000, time: Duration::from_millis(4) }));
        assert_eq!(in_all(&ProgramTime::default(), 10, 5), None);
    }
}
