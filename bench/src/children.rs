//! Child processes of the benchmarks.

use std::process::Command;
use std::time::Duration;

use harness::{Process, Victim};

/// Time limit of a child: longer than any step of a benchmark. `cargo xtask bench` limits the whole run.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Starts a tracer, and captures its standard error.
pub(crate) fn start_tracer(command: &mut Command) -> Process {
    Process::start(command).with_timeout(TIMEOUT)
}

/// Starts a victim, and waits until it is at its barrier. The victim inherits standard error.
pub(crate) fn start_victim(command: &mut Command) -> Victim {
    Victim::wait_for(Process::start_with_inherited_stderr(command).with_timeout(TIMEOUT))
}
