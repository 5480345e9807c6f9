//! Victims: processes that wait at a barrier, do their work, and print its result as JSON.

use std::process::Command;

use serde::de::DeserializeOwned;

use crate::process::{self, Process};
use crate::totals::VictimTotals;

/// A victim that has reached its first barrier.
pub struct Victim {
    process: Process,
    pid: u32,
}

impl Victim {
    /// Starts `command` and waits until it is at its first barrier.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        Self::wait_for(Process::start(command))
    }

    /// Waits until `process` is at its first barrier, where it prints `ready PID`.
    #[must_use]
    pub fn wait_for(mut process: Process) -> Self {
        let line = process.read_line();
        let Some(pid) = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok()) else {
            panic!("a victim printed `{line}`, not `ready PID`");
        };
        Self { process, pid }
    }

    /// Returns the pid that the victim has printed. A shell that started the victim has another
    /// pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Releases the victim from its barrier, and returns its totals when its work is done.
    pub fn work(&mut self) -> VictimTotals {
        self.process.write_line("");
        self.read_totals()
    }

    /// Reads the totals that the victim prints next.
    pub fn read_totals(&mut self) -> VictimTotals {
        self.read_json()
    }

    /// Reads the next line of the victim's output as JSON.
    pub fn read_json<T: DeserializeOwned>(&mut self) -> T {
        let line = self.process.read_line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in the victim's line: {line}"))
    }

    /// Waits until the victim reads its standard input. Some victims allocate after they have printed a line.
    pub fn wait_until_reading_stdin(&self) {
        process::wait_until_reading_stdin(self.pid);
    }

    /// Releases the victim from its last barrier, and waits until it exits with status 0.
    pub fn finish(mut self) {
        self.process.write_line("");
        let status = self.process.wait();
        assert!(status.success(), "the victim ended with {status}: {}", self.process.remaining_stderr());
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
