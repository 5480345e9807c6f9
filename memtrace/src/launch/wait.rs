//! A started command, until its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::model::Pid;

/// A child of memtrace. It goes on when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
}

impl Child {
    pub(super) fn new(pid: Pid, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd, status: None }
    }

    /// Its pid.
    #[must_use]
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// A descriptor that becomes readable when it ends.
    #[must_use]
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    ///
    /// What `waitpid` returns.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.waitpid(libc::WNOHANG)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What `waitpid` returns.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.waitpid(0)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn waitpid(&mut self, flags: libc::c_int) -> io::Result<Option<ExitStatus>> {
        while self.status.is_none() {
            let pid = libc::pid_t::try_from(self.pid.0).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut status = 0;
            // SAFETY: `status` is valid for the length of the call.
            match unsafe { libc::waitpid(pid, &raw mut status, flags) } {
                0 => break,
                -1 => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                _ => self.status = Some(ExitStatus::from_raw(status)),
            }
        }
        Ok(self.status)
    }
}
