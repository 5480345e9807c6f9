//! Process to change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::parent_id;
use std::time::Duration;

use memtrace_model::Pid;

use crate::patcher::refusal::PatchRefusal;
use crate::procfs::{self, ProcessError};

/// Maximum number of threads whose children are compared with their process, and of these children.
const MAX_PARENTS: usize = 256;
const MAX_CHILDREN: usize = 1024;

/// Process that is not confused with a later process with the same pid.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) pid: Pid,
    pidfd: OwnedFd,
}

impl Target {
    /// Opens a process. `start_time`: the start of the process, if it is known.
    pub(super) fn open(pid: u32, start_time: Option<u64>) -> Result<Self, PatchRefusal> {
        // memtrace waits for the patcher, and would never be continued.
        if pid == std::process::id() || pid == parent_id() {
            return Err(PatchRefusal::Permission(String::from("memtrace does not patch itself")));
        }
        let pid = Pid(pid);
        let pidfd = procfs::open_pidfd(pid).map_err(|_| PatchRefusal::Exiting)?;
        let target = Self { pid, pidfd };
        let start = procfs::start_time(pid);
        // If the process has not exited, the start is its own.
        target.check()?;
        let is_same = start.is_some() && start_time.is_none_or(|expected| start == Some(expected));
        // A stop of the thread that writes a core dump ends its write to a pipe, and the dump would be cut.
        let is_whole = procfs::task_status(pid, pid.0).is_ok_and(|status| !status.dumps_core);
        if is_same && is_whole { Ok(target) } else { Err(PatchRefusal::Exiting) }
    }

    /// Returns an error if the process has exited: its pid could belong to another process.
    pub(super) fn check(&self) -> Result<(), PatchRefusal> {
        if procfs::exits_within(self.pidfd.as_fd(), Duration::ZERO) { Err(PatchRefusal::Exiting) } else { Ok(()) }
    }

    /// Opens the memory of the process.
    pub(super) fn memory(&self) -> Result<File, PatchRefusal> {
        procfs::open_memory_for_writing(self.pid).map_err(|error| memory_refusal(&error))
    }
}

/// Returns true if the parent or a child of a process uses the same memory. Its threads would run while the code changes. A child of
/// vfork(2) is found once more, because its parent does not stop.
pub(super) fn shares_memory(pid: Pid) -> bool {
    let tasks = procfs::tasks(pid).unwrap_or_default();
    let children = tasks.into_iter().take(MAX_PARENTS).flat_map(|tid| procfs::children(pid, tid));
    procfs::parent_with_same_memory(pid).is_some()
        || children.take(MAX_CHILDREN).any(|child| procfs::parent_with_same_memory(child) == Some(pid))
}

/// Returns the refusal for memory that cannot be opened.
pub(super) fn memory_refusal(error: &io::Error) -> PatchRefusal {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => PatchRefusal::Permission(format!("the memory of the process: {error}")),
        // An exec that waits for a file system holds a lock.
        _ if error.kind() == io::ErrorKind::TimedOut => PatchRefusal::ExecInProgress,
        _ => PatchRefusal::Exiting,
    }
}

/// Returns the refusal for an error of reading procfs.
pub(super) fn process_refusal(error: &ProcessError) -> PatchRefusal {
    match error {
        ProcessError::Locked(_) => PatchRefusal::ExecInProgress,
        ProcessError::Permission { refusal, .. } => PatchRefusal::Permission(refusal.to_string()),
        _ => PatchRefusal::Exiting,
    }
}
