//! Victims: programs that wait at a barrier, work, and say what they did.

use std::process::Command;

use crate::books::Books;
use crate::process::{self, Process};

/// A victim that waits at its first barrier, or works.
pub struct Victim {
    process: Process,
    pid: u32,
}

impl Victim {
    /// Runs a command that becomes a victim, and waits until it is at its barrier.
    ///
    /// # Panics
    ///
    /// If it doesn't come there.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command);
        let line = process.line();
        let Some(pid) = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok()) else {
            panic!("{command:?} said `{line}` when it should be ready");
        };
        Self { process, pid }
    }

    /// The victim's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it pass its barrier, and returns its books when it has worked.
    ///
    /// # Panics
    ///
    /// If it prints no books.
    pub fn work(&mut self) -> Books {
        self.process.tell("");
        self.books()
    }

    /// The books that it prints next.
    ///
    /// # Panics
    ///
    /// If it prints none.
    pub fn books(&mut self) -> Books {
        let line = self.process.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("books that are none ({error}): {line}"))
    }

    /// Waits until it waits for its standard input: for programs that still allocate after they have said something.
    ///
    /// # Panics
    ///
    /// If it doesn't come there.
    pub fn wait_until_it_reads(&self) {
        process::wait_until_it_reads(self.pid);
    }

    /// Lets it pass its last barrier, and waits until it has ended well.
    ///
    /// # Panics
    ///
    /// If it doesn't end, or not well.
    pub fn finish(mut self) {
        self.process.tell("");
        let status = self.process.wait();
        assert!(status.success(), "the victim ended with {status}: {}", self.process.rest_of_errors());
    }

    /// The process behind the victim.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
