//! Running command and its exit status.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use memtrace_model::Pid;

use super::hold::{ExecHold, StoppedImage};

/// Child process of memtrace. Dropping this value continues the images that are stopped at their exec. It has no other effect
/// on the process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
    /// Present while the process is stopped at each exec. During this time, only the thread of `hold` may wait for the process.
    hold: Option<ExecHold>,
}

impl Child {
    pub(super) fn new(pid: Pid, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd, status: None, hold: None }
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

    /// Stops the process, and the processes that it starts, at each exec. The process must wait at the barrier.
    pub(super) fn hold(&mut self, stopped: impl Fn() + Send + 'static) -> io::Result<()> {
        self.hold = Some(ExecHold::start(self.pid, stopped)?);
        Ok(())
    }

    /// Returns the images that have stopped at their exec since the last call, and are still stopped.
    #[must_use]
    pub fn take_stopped_images(&self) -> Vec<StoppedImage> {
        self.hold.as_ref().map(ExecHold::take_stopped).unwrap_or_default()
    }

    /// Lets an image run. Returns false if the image is not stopped any more: it was stopped for two seconds, or it has ended.
    pub fn resume(&self, image: StoppedImage) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.resume(image))
    }

    /// Stops no image at its exec any more, and lets the stopped ones run.
    pub fn end_hold(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.status = hold.end();
        }
    }

    /// Returns the exit status; `None` while the process runs.
    ///
    /// # Errors
    ///
    /// Errors of waitpid(2).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &self.hold {
            Some(hold) => Ok(hold.command_status()),
            None => self.waitpid(libc::WNOHANG),
        }
    }

    /// Waits for the exit, and returns the exit status. While images are stopped at each exec, waits for all processes that the
    /// process has started, too.
    ///
    /// # Errors
    ///
    /// Errors of waitpid(2).
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(hold) = self.hold.take() {
            self.status = hold.join();
        }
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
