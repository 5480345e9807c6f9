//! Why a target cannot be traced.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::allocators::ExaminedObject;
use crate::model::Pid;

/// Why a target cannot be traced. Every message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no process with this pid.
    #[error("there is no process {0}; `ps -e` lists those that run")]
    NoSuchProcess(Pid),
    /// The process ended before or while it was looked at.
    #[error("process {0} has ended")]
    Ended(Pid),
    /// The pid is a kernel thread's.
    #[error("{pid} is the kernel thread {comm}, which has no memory of its own; choose a process")]
    KernelThread {
        /// The pid that was asked for.
        pid: Pid,
        /// The thread's name.
        comm: String,
    },
    /// The pid is a thread's, not a process'.
    #[error("{pid} is a thread of process {of}; use --pid {of}")]
    Thread {
        /// The number that was asked for.
        pid: Pid,
        /// The process that the thread belongs to.
        of: Pid,
    },
    /// The main thread has ended while others go on: the kernel no longer shows the process' memory under its pid.
    #[error("the main thread of process {0} has ended while others go on; such a process cannot be traced")]
    MainThreadEnded(Pid),
    /// The process may not be looked at.
    #[error("process {0} may not be looked at: run as root (sudo), or with the capability CAP_SYS_PTRACE")]
    Permission(Pid),
    /// Something in `/proc` could not be read or understood.
    #[error("cannot read {}: {source}; is /proc mounted?", path.display())]
    Proc {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No descriptor for the process could be had.
    #[error("cannot hold on to process {pid}: {source}")]
    Hold {
        /// The process.
        pid: Pid,
        /// Why.
        source: io::Error,
    },
    /// None of what the target has mapped is an allocator.
    #[error("no allocator was found: nothing that defines malloc and free; looked at:{}", lines(looked_at))]
    NoAllocator {
        /// What was looked at, and what it turned out to be.
        looked_at: Vec<ExaminedObject>,
    },
    /// A file that may have been the allocator is damaged.
    #[error("{}: {why}; no other allocator was found", path.display())]
    BadObject {
        /// The file, as the target sees it.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no program of this name.
    #[error("{}: command not found", command.display())]
    CommandNotFound {
        /// The name, as it was given.
        command: OsString,
    },
    /// The program is there but cannot be run.
    #[error("{}: cannot be run: {source}", command.display())]
    CommandNotRunnable {
        /// The name, as it was given.
        command: OsString,
        /// Why.
        source: io::Error,
    },
    /// A command could not be prepared.
    #[error("cannot start a command: {what}: {source}")]
    Start {
        /// The step that failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// `SUDO_UID` or `SUDO_GID` is set to something that is no id.
    #[error("{variable} is {}, which is no id; unset it to run the command as root", value.display())]
    BadIdentity {
        /// The variable's name.
        variable: &'static str,
        /// Its value.
        value: OsString,
    },
}

fn lines(looked_at: &[ExaminedObject]) -> String {
    if looked_at.is_empty() {
        return " nothing, no file is mapped".to_owned();
    }
    looked_at.iter().map(|looked| format!("\n  {looked}")).collect()
}
