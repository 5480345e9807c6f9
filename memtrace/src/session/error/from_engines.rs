//! The engines' errors as the user hears them.

use std::io;

use super::Error;
use crate::kernel::KernelError;
use crate::model::Pid;
use crate::procfs::TargetError;

/// What the kernel said, about `pid` where it is about one.
pub(crate) fn kernel(pid: Option<Pid>, error: KernelError) -> Error {
    match (error, pid) {
        (KernelError::Permission { action, .. }, _) => Error::Permission {
            // The error's text begins with the action as a noun.
            action: format!("to {action}"),
            capability: String::from(
                "CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON where the kernel places probes for these",
            ),
        },
        (KernelError::Unsupported { action, reason }, _) => Error::Kernel {
            missing: format!("the means to {action}: {reason}"),
            remedy: String::from("`memtrace doctor` lists what this kernel has and what it lacks"),
        },
        (KernelError::TargetEnded, Some(pid)) => Error::Ended { pid },
        (error @ (KernelError::TargetEnded | KernelError::Failed { .. }), _) => Error::Failed(error.to_string()),
    }
}

/// What was wrong with the process `pid`.
pub(crate) fn target(pid: Pid, error: TargetError) -> Error {
    let untraceable = |pid, reason: &str, remedy: String| Error::Untraceable { pid, reason: reason.to_owned(), remedy };
    match error {
        TargetError::NoSuchProcess(pid) => Error::NoSuchProcess { pid },
        TargetError::Ended(pid) => Error::Ended { pid },
        TargetError::KernelThread { pid, comm } => untraceable(
            pid,
            &format!("it is the kernel thread {comm}, which has no memory of its own"),
            String::from("choose a process"),
        ),
        TargetError::Thread { pid, of } => {
            untraceable(pid, &format!("it is a thread of process {of}"), format!("give --pid {of}"))
        }
        TargetError::MainThreadEnded(pid) => untraceable(
            pid,
            "its main thread has ended while others go on",
            String::from("such a process cannot be traced"),
        ),
        TargetError::Permission(pid) => Error::Permission {
            action: format!("to look at process {pid}"),
            capability: String::from("CAP_SYS_PTRACE, beside CAP_BPF and CAP_PERFMON"),
        },
        TargetError::NoAllocator { looked_at } => {
            Error::NoAllocator { pid, looked_at: looked_at.iter().map(|looked| looked.to_string().into()).collect() }
        }
        TargetError::BadObject { path, why } => Error::BadObject { path, reason: why },
        other => launch(other),
    }
}

/// What was wrong with a command.
pub(crate) fn launch(error: TargetError) -> Error {
    match error {
        TargetError::CommandNotFound { command } => {
            let source = io::Error::new(io::ErrorKind::NotFound, "there is no such program");
            Error::Command { program: command, source }
        }
        TargetError::CommandNotRunnable { command, source } => Error::Command { program: command, source },
        other => Error::Failed(other.to_string()),
    }
}
