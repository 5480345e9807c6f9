//! One process: whether it can be traced, and what it is.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::ProcessError;
use super::pidfd;
use crate::model::Pid;

/// `PF_KTHREAD`: the task is a kernel thread (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

/// How long a process whose main thread has ended may take to end before it is said to go on without it.
const ENDING: Duration = Duration::from_millis(200);

/// A process that can be traced, held by a descriptor that never comes to mean another one.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its pid.
    pub pid: Pid,
    /// Its short name.
    pub comm: String,
    /// Its program, as it sees the path itself.
    pub exe: PathBuf,
    /// Whether it sees other file systems than memtrace does.
    pub foreign_mounts: bool,
    /// Whether it counts pids differently than memtrace does.
    pub foreign_pids: bool,
    pidfd: OwnedFd,
}

impl Process {
    /// Whether it has ended.
    #[must_use]
    pub(crate) fn has_exited(&self) -> bool {
        pidfd::has_exited(self.pidfd.as_fd())
    }

    /// A descriptor that becomes readable when the process ends.
    #[must_use]
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Looks at a process.
///
/// # Errors
///
/// Where there is no such process, or it cannot be traced: [`ProcessError`] says which and why.
pub(crate) fn inspect(pid: Pid) -> Result<Process, ProcessError> {
    // The descriptor comes first: if the process still lives when all has been read, the pid meant it all the time.
    let pidfd = open(pid)?;
    let read = read(pid);
    // While a process ends, its main thread is a zombie a little before the others are.
    let patience = if matches!(read, Err(ProcessError::MainThreadExited(_))) { ENDING } else { Duration::ZERO };
    if pidfd::exits_within(pidfd.as_fd(), patience) {
        return Err(ProcessError::Exited(pid));
    }
    let (stat, exe) = read?;
    Ok(Process {
        pid,
        comm: stat.comm,
        exe,
        foreign_mounts: foreign_namespace(pid, "mnt")?,
        foreign_pids: foreign_namespace(pid, "pid")?,
        pidfd,
    })
}

fn open(pid: Pid) -> Result<OwnedFd, ProcessError> {
    pidfd::open(pid).map_err(|error| match error.raw_os_error() {
        // A thread's number is refused with EINVAL, and with ENOENT since 6.15 (`pidfd_prepare`, kernel/fork.c).
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
    let text = fs::read(&path).map_err(|error| failure(pid, &path, error))?;
    let stat = Stat::parse(&text).ok_or_else(|| failure(pid, &path, io::ErrorKind::InvalidData.into()))?;
    if stat.flags & PF_KTHREAD != 0 {
        return Err(ProcessError::KernelThread { pid, comm: stat.comm });
    }
    // The caller has seen that some thread lives; a zombie here is the main thread alone.
    if matches!(stat.state, b'Z' | b'X') {
        return Err(ProcessError::MainThreadExited(pid));
    }
    Ok((stat, program(pid)?))
}

/// The program that a process runs, by the path that it sees itself.
pub(crate) fn program(pid: Pid) -> Result<PathBuf, ProcessError> {
    let path = proc_path(pid, "exe");
    let exe = fs::read_link(&path).map_err(|error| failure(pid, &path, error))?;
    Ok(inside_root(pid, &exe))
}

/// A path that the kernel gave in full, as the process sees it: below its own root directory.
pub(crate) fn inside_root(pid: Pid, path: &Path) -> PathBuf {
    let below =
        fs::read_link(proc_path(pid, "root")).ok().and_then(|root| path.strip_prefix(root).ok().map(PathBuf::from));
    below.map_or_else(|| path.to_owned(), |below| Path::new("/").join(below))
}

/// `/proc/PID/NAME`.
pub(crate) fn proc_path(pid: Pid, name: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(name)
}

/// What it means that a file of a process in `/proc` could not be read.
pub(crate) fn failure(pid: Pid, path: &Path, error: io::Error) -> ProcessError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => ProcessError::Permission(pid),
        Some(libc::ENOENT | libc::ESRCH) => ProcessError::Exited(pid),
        _ => ProcessError::Proc { path: path.to_owned(), source: error },
    }
}

fn foreign_namespace(pid: Pid, kind: &str) -> Result<bool, ProcessError> {
    let path = proc_path(pid, &format!("ns/{kind}"));
    let theirs = fs::read_link(&path).map_err(|error| failure(pid, &path, error))?;
    let path = Path::new("/proc/self/ns").join(kind);
    let ours = fs::read_link(&path).map_err(|source| ProcessError::Proc { path, source })?;
    Ok(theirs != ours)
}

/// The process that a thread belongs to. `/proc/TID` can be opened though it is not listed.
fn process_of(thread: Pid) -> Option<Pid> {
    let status = fs::read_to_string(proc_path(thread, "status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok().map(Pid)
}

/// The fields of `/proc/PID/stat` that are used here (`do_task_stat`, fs/proc/array.c).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    comm: String,
    state: u8,
    flags: u64,
}

impl Stat {
    /// `PID (COMM) STATE …`: the name may itself hold blanks and parentheses, so its end is the last one.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let comm = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        // Fields are counted from 1 in proc(5), and the state is the third.
        let fields = stat_fields(text)?;
        let field = |number: usize| fields.get(number - 3);
        Some(Self { comm, state: *field(3)?.as_bytes().first()?, flags: field(9)?.parse().ok()? })
    }
}

/// The fields of `/proc/PID/stat` from the third on, which is behind the name.
pub(crate) fn stat_fields(text: &[u8]) -> Option<Vec<&str>> {
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    Some(rest.split_ascii_whitespace().collect())
}

#[cfg(test)]
mod tests;
