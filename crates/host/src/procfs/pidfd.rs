//! pidfds, which refer to one process even if its pid is reused.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use memtrace_model::Pid;

/// Opens a pidfd of a process.
pub(crate) fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
    let fd = RawFd::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns true if there is no process `pid`, or all its threads have exited.
pub fn has_ended(pid: Pid) -> bool {
    match open_pidfd(pid) {
        Ok(pidfd) => has_exited(pidfd.as_fd()),
        Err(error) => error.raw_os_error() == Some(libc::ESRCH),
    }
}

/// Returns true if the process has exited. The parent need not have waited for it.
pub(super) fn has_exited(pidfd: BorrowedFd<'_>) -> bool {
    exits_within(pidfd, Duration::ZERO)
}

/// Waits for the exit of a process. Returns false if the timeout expires first.
///
/// A pidfd becomes readable when the last thread exits (`pidfd_poll`, fs/pidfs.c).
pub fn exits_within(pidfd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let milliseconds = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one valid pollfd for the length of the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
    ready == 1 && poll.revents & libc::POLLIN != 0
}
