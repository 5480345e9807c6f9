//! Run time of a BPF program.

use anyhow::{Context as _, Result};
use aya::programs::loaded_programs;

/// Number of runs and total run time of a BPF program, from the kernel's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunTime {
    runs: u64,
    ns: u128,
}

impl RunTime {
    /// Reads the statistics of the BPF program with the id `program`.
    pub(super) fn read(program: u32) -> Result<Self> {
        let mut programs = loaded_programs().filter_map(Result::ok);
        let info = programs.find(|info| info.id() == program);
        let info = info.with_context(|| format!("BPF program {program} is no longer loaded"))?;
        Ok(Self { runs: info.run_count(), ns: info.run_time().as_nanos() })
    }

    /// Returns the number of runs and the run time since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { runs: self.runs - earlier.runs, ns: self.ns - earlier.ns }
    }

    pub(super) fn ns_per_run(self) -> f64 {
        self.ns as f64 / self.runs.max(1) as f64
    }

    pub(super) fn runs(self) -> u64 {
        self.runs
    }
}
