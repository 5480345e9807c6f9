//! Run time of the BPF programs, as the kernel measures it (`BPF_ENABLE_STATS`).
//!
//! While this measurement is enabled, the kernel reads the clock twice for each run of a program. A trace therefore
//! enables it only for a part of the time.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use aya::sys::{Stats, enable_stats};
use aya_obj::generated::bpf_prog_info;
use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_KPROBE;

use super::bpf_syscall::program_info;

/// Runs of BPF programs while they were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTime {
    /// Number of runs.
    pub runs: u64,
    /// Total duration of the runs (`run_time_ns` of `struct bpf_prog_info`).
    pub time: Duration,
}

/// Switch of the kernel's measurement.
#[derive(Debug, Default)]
pub(super) struct ProgramTimer {
    /// The kernel times programs while this descriptor is open.
    stats: Option<OwnedFd>,
}

impl ProgramTimer {
    /// Enables or disables the measurement. If it cannot be enabled, nothing is timed.
    pub(super) fn enable(&mut self, on: bool) {
        let open =
            || enable_stats(Stats::RunTime).inspect_err(|error| log::debug!("cannot time BPF programs: {error}")).ok();
        self.stats = if on { open() } else { None };
    }

    /// Sums up the run times of those `programs` that `counts` accepts.
    pub(super) fn read<'a>(
        programs: impl Iterator<Item = BorrowedFd<'a>>,
        counts: fn(&bpf_prog_info) -> bool,
    ) -> ProgramTime {
        let mut total = ProgramTime::default();
        for info in programs.filter_map(|program| program_info(program).ok()).filter(counts) {
            total.runs += info.run_cnt;
            total.time += Duration::from_nanos(info.run_time_ns);
        }
        total
    }
}

/// Returns true for a program at uprobes. All other programs belong to tracepoints, perf events or iterators, and have
/// other types.
pub(super) fn is_at_uprobes(info: &bpf_prog_info) -> bool {
    info.type_ == BPF_PROG_TYPE_KPROBE as u32
}
