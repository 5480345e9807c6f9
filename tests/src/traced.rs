//! A victim traced between its barriers, with its totals and reference stacks.

use std::process::Command;

use crate::oracle::Comparison;
use crate::{CountShim, Oracle, Report, Scratch, Trace, Victim, VictimTotals, victim};

/// memtrace's report on a victim, and the totals that it should have.
pub struct Traced {
    pub report: Report,
    pub expected: VictimTotals,
}

impl Traced {
    /// Traces the victim `name`.
    #[must_use]
    pub fn victim(name: &str) -> Self {
        Self::trace(&mut Command::new(victim::path(name)), || ())
    }

    /// Traces the victim `name`, and compares all stacks with those of libgcc's unwinder.
    #[must_use]
    pub fn with_oracle(name: &str) -> (Self, Comparison) {
        let scratch = Scratch::new();
        let oracle = Oracle::create(&scratch);
        let path = victim::path(name);
        let traced = Self::trace(Command::new(&path).envs(oracle.environment()), || oracle.begin(1));
        let comparison = oracle.compare(&path, &traced.report);
        (traced, comparison)
    }

    /// Traces the victim `name`, which counts nothing itself; the shim counts its calls.
    #[must_use]
    pub fn with_counts(name: &str) -> Self {
        let scratch = Scratch::new();
        let counts = CountShim::create(&scratch);
        let path = victim::path(name);
        let traced = Self::trace(Command::new(&path).envs(counts.environment()), || counts.begin());
        Self { expected: counts.read(), ..traced }
    }

    /// Calls `begin` after memtrace has attached, with the victim at its barrier.
    fn trace(command: &mut Command, begin: impl FnOnce()) -> Self {
        let mut victim = Victim::start(command);
        let tracer = Trace::victim(&victim).start();
        begin();
        let expected = victim.work();
        let report = tracer.stop().report();
        victim.finish();
        Self { report, expected }
    }
}
