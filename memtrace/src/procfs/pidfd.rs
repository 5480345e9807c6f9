//! Descriptors that stand for a process and, unlike its pid, never for another one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::model::Pid;

/// Opens a descriptor for the process.
pub(crate) fn open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
    let fd = RawFd::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the whole process has ended, be it collected by its parent or not.
pub(crate) fn has_exited(pidfd: BorrowedFd<'_>) -> bool {
    exits_within(pidfd, Duration::ZERO)
}

/// Whether the whole process has ended before `patience` is over.
///
/// A pidfd becomes readable when the last thread ends (`pidfd_poll`, fs/pidfs.c).
pub(crate) fn exits_within(pidfd: BorrowedFd<'_>, patience: Duration) -> bool {
    let milliseconds = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one valid pollfd for the length of the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
    ready == 1 && poll.revents & libc::POLLIN != 0
}
