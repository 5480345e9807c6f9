//! How much time the programs take, by the kernel's own account.
//!
//! The account itself costs each run two readings of the clock, so it is kept only for a part of the time.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use aya::sys::{Stats, enable_stats};

use super::bpf_syscall::program_info;

/// Runs of the programs while they were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTime {
    /// How often any program ran.
    pub runs: u64,
    /// How long all runs took together (`run_time_ns` of `struct bpf_prog_info`).
    pub time: Duration,
}

/// Turns the kernel's account on and off.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The kernel times runs as long as this is open.
    account: Option<OwnedFd>,
}

impl Meter {
    /// Has runs timed from now on, or no more. Kernels before 5.8 cannot be asked, and then nothing is timed.
    pub(super) fn turn(&mut self, on: bool) {
        let open = || {
            enable_stats(Stats::RunTime)
                .inspect_err(|error| log::debug!("the kernel does not time programs: {error}"))
                .ok()
        };
        self.account = if on { open() } else { None };
    }

    /// What was timed so far.
    pub(super) fn read<'a>(programs: impl Iterator<Item = BorrowedFd<'a>>) -> ProgramTime {
        let mut total = ProgramTime::default();
        for info in programs.filter_map(|program| program_info(program).ok()) {
            total.runs += info.run_cnt;
            total.time += Duration::from_nanos(info.run_time_ns);
        }
        total
    }
}
