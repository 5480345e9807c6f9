//! Resources that memtrace and its BPF programs have used.

use std::process;
use std::time::Duration;

use memtrace_host::kernel::ProgramTime;
use memtrace_host::procfs;
use memtrace_model::{Bytes, Cost, Pid, ProgramCost};

/// Returns the processor time that memtrace has used so far.
pub(super) fn processor_time() -> Duration {
    procfs::processor_time(own_pid()).unwrap_or_default()
}

/// Returns the cost of the run so far. `programs`: timed runs of the programs at probes. `hits`: number of all hits.
pub(super) fn cost_so_far(events: u64, nested: u64, cpu_tracing: Duration, programs: &ProgramTime, hits: u64) -> Cost {
    Cost {
        events,
        nested,
        cpu: processor_time(),
        cpu_tracing,
        // `ru_maxrss` may be from the process image before memtrace's exec (`setmax_mm_hiwater_rss`, fs/exec.c).
        peak_rss: procfs::counted(own_pid()).map_or(Bytes(0), |counted| counted.peak),
        programs: extrapolate(programs, hits),
    }
}

/// Returns the RSS of memtrace; `None` if it cannot be read.
pub(super) fn own_rss() -> Option<Bytes> {
    procfs::counted(own_pid()).ok().map(|counted| counted.rss)
}

fn own_pid() -> Pid {
    Pid(process::id())
}

/// Extrapolates the time of the timed runs to all hits.
fn extrapolate(programs: &ProgramTime, hits: u64) -> Option<ProgramCost> {
    (programs.runs > 0 && hits > 0)
        .then(|| ProgramCost { hits, time: programs.time.mul_f64(hits as f64 / programs.runs as f64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_part_is_extrapolated_to_all_hits() {
        let timed = ProgramTime { runs: 1000, time: Duration::from_micros(400) };
        let cost = extrapolate(&timed, 10_000);
        assert_eq!(cost, Some(ProgramCost { hits: 10_000, time: Duration::from_millis(4) }));
        assert_eq!(extrapolate(&ProgramTime::default(), 15), None);
        assert_eq!(extrapolate(&timed, 0), None);
    }
}
