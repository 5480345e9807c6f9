//! Running command and its exit status.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use memtrace_model::Pid;

/// Child process of memtrace. Dropping this value does not affect the process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
}

impl Child {
    pub(super) fn new(pid: Pid, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd, status: None }
    }

    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a pidfd, which becomes readable when the process exits.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the exit status; `None` while the process runs.
    ///
    /// # Errors
    ///
    /// Errors of waitpid(2).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.waitpid(libc::WNOHANG)
    }

    /// Waits for the exit, and returns the exit status.
    ///
    /// # Errors
    ///
    /// Errors of waitpid(2).
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
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
