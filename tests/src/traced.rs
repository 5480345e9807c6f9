//! A victim traced between its barriers, with the books and the stacks of others beside memtrace's.

use std::process::Command;

use crate::books::Books;
use crate::counts::Counts;
use crate::oracle::Comparison;
use crate::report::Report;
use crate::{Oracle, Scratch, Trace, Victim, victim};

/// What memtrace says of a victim, and what the victim says.
pub struct Traced {
    /// memtrace's report.
    pub report: Report,
    /// The victim's books.
    pub books: Books,
}

impl Traced {
    /// Traces the victim `name`.
    ///
    /// # Panics
    ///
    /// If the trace or the victim does not go well.
    #[must_use]
    pub fn victim(name: &str) -> Self {
        Self::command(&mut Command::new(victim::path(name)), || ())
    }

    /// Traces the victim `name`, of which libgcc takes the stack of every allocation.
    ///
    /// # Panics
    ///
    /// If the trace or the victim does not go well.
    #[must_use]
    pub fn with_oracle(name: &str) -> (Self, Comparison) {
        let scratch = Scratch::new();
        let oracle = Oracle::create(&scratch);
        let path = victim::path(name);
        let traced = Self::command(Command::new(&path).envs(oracle.environment()), || oracle.begin(1));
        let comparison = oracle.compare(&path, &traced.report);
        (traced, comparison)
    }

    /// Traces the victim `name`, which keeps no books, with those of the calls that were seen in it.
    ///
    /// # Panics
    ///
    /// If the trace or the victim does not go well.
    #[must_use]
    pub fn with_counts(name: &str) -> Self {
        let scratch = Scratch::new();
        let counts = Counts::create(&scratch);
        let path = victim::path(name);
        let traced = Self::command(Command::new(&path).envs(counts.environment()), || counts.begin());
        Self { books: counts.read(), ..traced }
    }

    /// `begin` is called when memtrace is there and the victim is at its barrier.
    fn command(command: &mut Command, begin: impl FnOnce()) -> Self {
        let mut victim = Victim::start(command);
        let tracer = Trace::of(&victim).start();
        begin();
        let books = victim.work();
        let report = tracer.stop().report();
        victim.finish();
        Self { report, books }
    }
}
