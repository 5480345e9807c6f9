//! Victims traced between their barriers, with their totals and reference stacks.

use std::collections::BTreeMap;
use std::process::Command;

use crate::oracle::Comparison;
use crate::{CountShim, Oracle, Report, Scratch, Trace, Victim, VictimTotals, victim};

/// Report of memtrace on a victim, and the totals that the report should have.
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

    /// Traces the victim `name`, and compares all its stacks with the stacks of libgcc's unwinder.
    #[must_use]
    pub fn with_oracle(name: &str) -> (Self, Comparison) {
        let scratch = Scratch::new();
        let oracle = Oracle::create(&scratch);
        let path = victim::path(name);
        let traced = Self::trace(Command::new(&path).envs(oracle.environment()), || oracle.begin(1));
        let comparison = oracle.compare(&path, &traced.report);
        (traced, comparison)
    }

    /// Traces the victim `name`, which does not count its own calls. The shim counts them.
    #[must_use]
    pub fn with_counts(name: &str) -> Self {
        let scratch = Scratch::new();
        let counts = CountShim::create(&scratch);
        let path = victim::path(name);
        let traced = Self::trace(Command::new(&path).envs(counts.environment()), || counts.begin());
        Self { expected: counts.read(), ..traced }
    }

    /// Traces a victim. Calls `begin` after memtrace has attached, while the victim is at its
    /// barrier.
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

/// Report on several victims, and the totals that each of them should have. The tests of these victims share one trace.
pub struct TracedTogether {
    report: Report,
    victims: BTreeMap<&'static str, (u32, VictimTotals)>,
}

impl TracedTogether {
    /// Traces the victims with these names. All victims get the same arguments.
    #[must_use]
    pub fn victims(names: &[&'static str], arguments: &[&str], options: &[&str]) -> Self {
        let mut running: Vec<(&'static str, Victim)> =
            names.iter().map(|name| (*name, victim::start_with(name, arguments))).collect();
        let pids: Vec<u32> = running.iter().map(|(_, victim)| victim.pid()).collect();
        let tracer = Trace::pids(&pids).options(options).start();
        let victims = running.iter_mut().map(|(name, victim)| (*name, (victim.pid(), victim.work()))).collect();
        let report = tracer.stop().report();
        running.into_iter().for_each(|(_, victim)| victim.finish());
        report.assert_consistent();
        report.assert_nothing_lost();
        // Victims that only allocate can have a high overhead.
        let notes: Vec<_> = report.notes.iter().filter(|note| !note.starts_with("tracing took at least ")).collect();
        assert_eq!(notes, [""; 0]);
        assert_eq!(report.processes.len(), names.len(), "{:#?}", report.processes);
        Self { report, victims }
    }

    /// Asserts that the totals of a victim match.
    ///
    /// # Panics
    ///
    /// If the totals do not match, or the victim was not traced.
    pub fn assert_equals(&self, name: &str) {
        let (pid, expected) = self.victims.get(name).unwrap_or_else(|| panic!("{name} was not traced"));
        let [process] = self.report.entries_of(*pid)[..] else { panic!("not one entry: {:#?}", self.report.processes) };
        process.assert_equals(expected);
    }
}
