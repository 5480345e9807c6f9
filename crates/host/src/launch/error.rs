//! Reasons why a command cannot be started.

use std::ffi::OsString;
use std::io;

use memtrace_model::{Pid, printable};

/// Reason why a command cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no executable of this name.
    #[error("{}: command not found", printable(command))]
    NotFound {
        /// The name as given.
        command: OsString,
    },
    /// The file exists but cannot be executed.
    #[error("{}: cannot be run: {source}", printable(command))]
    NotRunnable {
        /// The name as given.
        command: OsString,
        /// Error of execve(2).
        source: io::Error,
    },
    /// The child process could not be prepared.
    #[error("cannot start a command: {step}: {source}")]
    Start {
        /// The step that failed.
        step: &'static str,
        /// Error of that step.
        source: io::Error,
    },
    /// The waiting child was killed before it became the command.
    #[error("process {0} exited before it became the command")]
    Exited(Pid),
    /// `SUDO_UID` or `SUDO_GID` is not a number.
    #[error("{variable} is {}, which is not an id; unset it to run the command as root", printable(value))]
    BadIdentity {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        value: OsString,
    },
}
