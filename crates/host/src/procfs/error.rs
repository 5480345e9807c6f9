//! Reasons why a process cannot be read.

use std::io;
use std::path::PathBuf;

use memtrace_model::{Comm, Pid, printable};

use super::refusal::ReadRefusal;

/// Reason why a process cannot be read. The message says what the user can do about it, if anything.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no process with this pid.
    #[error("there is no process {0}; `ps -e` lists those that run")]
    NoSuchProcess(Pid),
    /// The process exited before or while it was read.
    #[error("process {0} has exited")]
    Exited(Pid),
    /// The pid belongs to a kernel thread.
    #[error("{pid} is the kernel thread {comm}, which has no memory of its own; choose a process")]
    KernelThread {
        /// The requested pid.
        pid: Pid,
        /// Name of the kernel thread.
        comm: Comm,
    },
    /// The number is the tid of a thread, not a pid.
    #[error("{pid} is a thread of process {of}; use --pid {of}")]
    Thread {
        /// The requested number.
        pid: Pid,
        /// Process that the thread belongs to.
        of: Pid,
    },
    /// The main thread exited while other threads run: the kernel no longer shows the process's memory under its pid.
    #[error("the main thread of process {0} has exited while others run; such a process cannot be traced")]
    MainThreadExited(Pid),
    /// memtrace has no permission to read the process.
    #[error("no permission to read process {pid}: {refusal}")]
    Permission {
        /// The process.
        pid: Pid,
        /// The reason.
        refusal: ReadRefusal,
    },
    /// The process does not release a lock of its memory.
    #[error("process {0} cannot be read: it holds a lock of its memory and waits, perhaps for a FUSE or NFS server")]
    Locked(Pid),
    /// A file of `/proc` could not be read or parsed.
    #[error("cannot read {}: {source}; is /proc mounted?", printable(path))]
    Proc {
        /// The file.
        path: PathBuf,
        /// Error of the read.
        source: io::Error,
    },
    /// `pidfd_open` failed.
    #[error("cannot open a pidfd of process {pid}: {source}")]
    Pidfd {
        /// The process.
        pid: Pid,
        /// Error of the call.
        source: io::Error,
    },
}
