//! Process to change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::parent_id;
use std::thread;
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
    /// Opens the process that has this pid, and has started at `start_time`, in clock ticks since the boot.
    pub(super) fn open(pid: u32, start_time: u64) -> Result<Self, PatchRefusal> {
        // memtrace waits for the patcher, and would never be continued.
        if pid == std::process::id() || pid == parent_id() {
            return Err(PatchRefusal::Permission(String::from("memtrace does not patch itself")));
        }
        let pid = Pid(pid);
        let pidfd = procfs::open_pidfd(pid).map_err(|_| PatchRefusal::Exiting)?;
        let target = Self { pid, pidfd };
        let start = procfs::start_time(pid);
        // If the process has not exited by now, the start that was read belongs to it.
        target.check()?;
        // A stop of the thread that writes a core dump interrupts its write to a pipe. The dump would be incomplete.
        let is_whole = procfs::task_status(pid, pid.0).is_ok_and(|status| !status.dumps_core);
        if start == Some(start_time) && is_whole { Ok(target) } else { Err(PatchRefusal::Exiting) }
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

/// Returns true if the parent or a child of a process uses the same memory. The threads of this other process would run while the
/// code changes. The parent is checked too, because the process itself can be a child of vfork(2).
pub(super) fn shares_memory(pid: Pid) -> bool {
    let tasks = procfs::tasks(pid).unwrap_or_default();
    let children = tasks.into_iter().take(MAX_PARENTS).flat_map(|tid| procfs::children(pid, tid));
    procfs::parent_with_same_memory(pid).is_some()
        || children.take(MAX_CHILDREN).any(|child| procfs::parent_with_same_memory(child) == Some(pid))
}

/// Returns true if a thread of a process sleeps uninterruptibly for `time`, as it does while a file system does not answer. The
/// thread cannot stop, and the threads that stop first would stand still until the end of the stop.
pub(super) fn has_long_sleeper(pid: Pid, time: Duration) -> bool {
    let status = |tid: u32| procfs::task_status(pid, tid).ok();
    let tasks = procfs::tasks(pid).unwrap_or_default();
    let statuses = tasks.into_iter().filter_map(|tid| Some((tid, status(tid)?)));
    // A stop does not wait for workers of io_uring.
    let asleep: Vec<_> =
        statuses.filter(|(tid, status)| status.state == b'D' && !procfs::is_io_worker(pid, *tid)).collect();
    if asleep.is_empty() {
        return false;
    }
    thread::sleep(time);
    asleep.iter().any(|(tid, before)| status(*tid).is_some_and(|now| now.has_slept_since(before)))
}

/// Returns the refusal for memory that cannot be opened.
pub(super) fn memory_refusal(error: &io::Error) -> PatchRefusal {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => PatchRefusal::Permission(format!("the memory of the process: {error}")),
        // An exec that waits for a file system holds a lock that this open needs.
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

#[cfg(test)]
mod tests {
    use harness::fixtures::Running;

    use super::*;

    #[test]
    fn later_process_with_the_same_pid_is_refused() {
        let running = Running::start("cat");
        let pid = running.pid();
        let start = procfs::start_time(pid).unwrap();
        assert!(Target::open(pid.0, start).is_ok());
        // The process that was patched had started earlier.
        assert_eq!(Target::open(pid.0, start - 1).map(drop), Err(PatchRefusal::Exiting));
        running.end();
        assert_eq!(Target::open(pid.0, start).map(drop), Err(PatchRefusal::Exiting));
    }
}
