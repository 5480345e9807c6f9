//! A loaded program, and what it took.

use anyhow::{Context as _, Result};
use aya::programs::loaded_programs;

/// What the kernel says a program took so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    runs: u64,
    ns: u128,
}

impl Account {
    /// Of the program with this id.
    pub(super) fn of(program: u32) -> Result<Self> {
        let mut programs = loaded_programs().filter_map(Result::ok);
        let info = programs.find(|info| info.id() == program);
        let info = info.with_context(|| format!("the program {program} has gone"))?;
        Ok(Self { runs: info.run_count(), ns: info.run_time().as_nanos() })
    }

    /// What came to it after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { runs: self.runs - earlier.runs, ns: self.ns - earlier.ns }
    }

    /// Nanoseconds a run.
    pub(super) fn ns_a_run(self) -> f64 {
        self.ns as f64 / self.runs.max(1) as f64
    }

    pub(super) fn runs(self) -> u64 {
        self.runs
    }
}
