//! Errors of reading a named process.

use memtrace_host::procfs::{ProcessError, ReadRefusal};
use memtrace_model::Pid;

use crate::run_kit::error::{Error, from_engines};

/// Converts an error of reading a process to an error for the user. Reading a process needs fewer capabilities than
/// tracing it, so the messages differ from the messages of a trace.
pub(super) fn user_error(pid: Pid, error: ProcessError) -> Error {
    match error {
        ProcessError::Permission { pid, refusal: ReadRefusal::Capability } => Error::Permission {
            action: format!("read process {pid}"),
            capability: String::from("CAP_SYS_PTRACE, or the process's own user with at least its capabilities"),
        },
        ProcessError::Exited(pid) => Error::NothingSelected {
            message: format!("process {pid} ended while memtrace was reading it"),
            remedy: String::from("`pgrep -a NAME` lists the pids of running processes"),
        },
        error => from_engines::process(pid, error),
    }
}
