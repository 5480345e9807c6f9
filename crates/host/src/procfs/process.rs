//! Inspection of a process before it is traced.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_model::{Comm, Pid};

use super::error::ProcessError;
use super::pidfd;
use super::refusal::ReadRefusal;
use crate::procfs::kernel_files;

/// `PF_KTHREAD`: the task is a kernel thread (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

/// `PF_EXITING`: the task is exiting (include/linux/sched.h).
const PF_EXITING: u64 = 4;

/// Time limit for the exit of a process after the exit of its main thread.
const EXIT_GRACE: Duration = Duration::from_millis(200);

/// Process that can be traced, identified by a pidfd.
#[derive(Debug)]
pub struct Process {
    pub pid: Pid,
    pub comm: Comm,
    /// Path of the executable in the root directory of the process.
    pub exe: PathBuf,
    /// True if the process is in another mount namespace than memtrace.
    pub foreign_mounts: bool,
    /// True if the process is in another pid namespace than memtrace.
    pub foreign_pids: bool,
    pidfd: OwnedFd,
}

impl Process {
    /// Returns true if the process has exited.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        pidfd::has_exited(self.pidfd.as_fd())
    }

    /// Returns true if the memory of the process cannot be read any more: the process has exited, or its main thread is
    /// exiting. The pidfd becomes readable only after the kernel has freed the memory.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        // If the process has not exited, the pid still belongs to it.
        self.has_exited() || is_exiting(self.pid) == Some(true)
    }

    /// Returns the pidfd, which becomes readable when the process exits.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Inspects a process.
///
/// # Errors
///
/// The reason why there is no such process, or why it cannot be traced.
pub fn inspect(pid: Pid) -> Result<Process, ProcessError> {
    // Open the pidfd first: if the process is still alive after all reads, the pid was not reused.
    let pidfd = open(pid)?;
    let read = read(pid);
    // When a process exits, its main thread becomes a zombie shortly before the other threads.
    let patience = if matches!(read, Err(ProcessError::MainThreadExited(_))) { EXIT_GRACE } else { Duration::ZERO };
    if pidfd::exits_within(pidfd.as_fd(), patience) {
        return Err(ProcessError::Exited(pid));
    }
    let (stat, exe) = read.map_err(|error| match error {
        // `exe` is empty while the kernel frees the memory of the process. The pidfd becomes readable after that
        // (`do_exit`, kernel/exit.c).
        ProcessError::Exited(pid) if is_exiting(pid) != Some(true) => hidden(pid),
        error => error,
    })?;
    Ok(Process {
        pid,
        comm: stat.comm.into(),
        exe,
        foreign_mounts: foreign_namespace(pid, "mnt")?,
        foreign_pids: foreign_namespace(pid, "pid")?,
        pidfd,
    })
}

/// Returns the error for a running process that `/proc` does not show. With the mount option `hidepid`, `/proc` shows a
/// process only if the reader may read its memory (`proc_pid_permission`, fs/proc/base.c).
fn hidden(pid: Pid) -> ProcessError {
    let path = Path::new("/proc/self").to_owned();
    match kernel_files::read_link(&path) {
        Ok(own) if own == Path::new(&std::process::id().to_string()) => {
            ProcessError::Permission { pid, refusal: ReadRefusal::find() }
        }
        Ok(_) => ProcessError::Proc { path, source: io::Error::other("it shows another pid namespace") },
        Err(source) => ProcessError::Proc { path, source },
    }
}

fn open(pid: Pid) -> Result<OwnedFd, ProcessError> {
    pidfd::open_pidfd(pid).map_err(|error| match error.raw_os_error() {
        // The error for a tid is EINVAL, and ENOENT since 6.15 (`pidfd_prepare`, kernel/fork.c).
        Some(libc::EINVAL | libc::ENOENT) => match process_of(pid) {
            Some(of) if of != pid => ProcessError::Thread { pid, of },
            _ => ProcessError::NoSuchProcess(pid),
        },
        Some(libc::ESRCH) => ProcessError::NoSuchProcess(pid),
        _ => ProcessError::Pidfd { pid, source: error },
    })
}

fn read(pid: Pid) -> Result<(Stat, PathBuf), ProcessError> {
    let path = proc_path(pid, "stat");
    let text = kernel_files::read(&path).map_err(|error| failure(pid, &path, error))?;
    let stat = Stat::parse(&text).ok_or_else(|| failure(pid, &path, io::ErrorKind::InvalidData.into()))?;
    if stat.flags & PF_KTHREAD != 0 {
        return Err(ProcessError::KernelThread { pid, comm: stat.comm.into() });
    }
    // The caller checks that a thread is alive. If so, only the main thread is a zombie.
    if matches!(stat.state, b'Z' | b'X') {
        return Err(ProcessError::MainThreadExited(pid));
    }
    Ok((stat, program(pid)?))
}

/// Reads `/proc/PID/stat`; returns `None` if it cannot be read.
fn stat(pid: Pid) -> Option<Stat> {
    Stat::parse(&kernel_files::read(proc_path(pid, "stat")).ok()?)
}

/// Returns true if the main thread of a process is exiting or has exited; `None` if its state cannot be read.
pub(super) fn is_exiting(pid: Pid) -> Option<bool> {
    stat(pid).map(|stat| stat.flags & PF_EXITING != 0)
}

/// Returns true if the pid belongs to a kernel thread.
pub(super) fn is_kernel_thread(pid: Pid) -> bool {
    stat(pid).is_some_and(|stat| stat.flags & PF_KTHREAD != 0)
}

/// Returns the time when a process started, in clock ticks since the boot. A later process with the same pid has another time.
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    // proc_pid_stat(5) counts fields from 1, and the first field of the result is the third.
    stat_fields(&kernel_files::read(proc_path(pid, "stat")).ok()?)?.get(22 - 3)?.parse().ok()
}

/// Returns true if a path is in procfs.
pub(crate) fn is_in_procfs(path: &Path) -> bool {
    path.starts_with("/proc")
}

/// Returns the mount namespace of a process, such as `mnt:[4026531841]`; `None` if it has exited.
pub(crate) fn mount_namespace(pid: Pid) -> Option<PathBuf> {
    kernel_files::read_link(proc_path(pid, "ns/mnt")).ok()
}

/// Returns the name of a process; `None` if it has exited.
pub fn comm(pid: Pid) -> Option<String> {
    let comm = kernel_files::read(proc_path(pid, "comm")).ok()?;
    Some(String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned())
}

/// Returns the path of a process's executable in its root directory.
pub(super) fn program(pid: Pid) -> Result<PathBuf, ProcessError> {
    let path = proc_path(pid, "exe");
    let exe = kernel_files::read_link(&path).map_err(|error| failure(pid, &path, error))?;
    Ok(inside_root(pid, &exe))
}

/// Converts an absolute path from the kernel to a path in the root directory of the process.
pub(super) fn inside_root(pid: Pid, path: &Path) -> PathBuf {
    let below = kernel_files::read_link(proc_path(pid, "root"))
        .ok()
        .and_then(|root| path.strip_prefix(root).ok().map(PathBuf::from));
    below.map_or_else(|| path.to_owned(), |below| Path::new("/").join(below))
}

/// Returns `/proc/PID/NAME`.
pub fn proc_path(pid: Pid, name: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(name)
}

/// Converts an error of reading a file in `/proc/PID`.
pub(super) fn failure(pid: Pid, path: &Path, error: io::Error) -> ProcessError {
    if error.kind() == io::ErrorKind::TimedOut {
        return ProcessError::Locked(pid);
    }
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => ProcessError::Permission { pid, refusal: ReadRefusal::find() },
        Some(libc::ENOENT | libc::ESRCH) => ProcessError::Exited(pid),
        _ => ProcessError::Proc { path: path.to_owned(), source: error },
    }
}

fn foreign_namespace(pid: Pid, kind: &str) -> Result<bool, ProcessError> {
    let path = proc_path(pid, &format!("ns/{kind}"));
    let theirs = kernel_files::read_link(&path).map_err(|error| failure(pid, &path, error))?;
    let path = Path::new("/proc/self/ns").join(kind);
    let ours = kernel_files::read_link(&path).map_err(|source| ProcessError::Proc { path, source })?;
    Ok(theirs != ours)
}

/// Returns the process of a thread. `/proc/TID` can be opened, although `/proc` does not list it.
fn process_of(thread: Pid) -> Option<Pid> {
    let status = kernel_files::read_to_string(proc_path(thread, "status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok().map(Pid)
}

/// Fields of `/proc/PID/stat` (`do_task_stat`, fs/proc/array.c).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    comm: String,
    state: u8,
    flags: u64,
}

impl Stat {
    /// Parses `PID (COMM) STATE …`. The name may contain blanks and parentheses. It ends at the last parenthesis.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let comm = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        // proc_pid_stat(5) counts fields from 1; the state is the third.
        let fields = stat_fields(text)?;
        let field = |number: usize| fields.get(number - 3);
        Some(Self { comm, state: *field(3)?.as_bytes().first()?, flags: field(9)?.parse().ok()? })
    }
}

/// Returns the fields of `/proc/PID/stat` after the name, beginning with the third field.
pub(super) fn stat_fields(text: &[u8]) -> Option<Vec<&str>> {
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    Some(rest.split_ascii_whitespace().collect())
}

#[cfg(test)]
mod tests;
