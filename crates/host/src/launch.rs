//! Start of a command, in two steps: the child waits until it is traced.
//!
//! [`Launch::prepare`] forks a child that waits at a barrier, a pipe. While it waits, probes can be attached to its
//! pid; [`Launch::release`] makes the child execute the command. If memtrace exits before the release, for any reason,
//! the pipe closes and the child exits too. After the release, the command continues even if memtrace is killed.
//!
//! After [`Launch::hold_execs`], the command and the processes that it starts stop at each exec.

mod child;
mod error;
mod hold;
mod identity;
pub mod path;
mod wait;

use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, PoisonError};

use memtrace_model::Pid;

use crate::procfs::open_pidfd;
use child::{Failure, Plan, Step, Strings};

pub use error::LaunchError;
pub use hold::StoppedImage;
pub use identity::Identity;
pub use wait::Child;

/// Serializes the creation of the pipes with the fork. Another child that is forked between the two would inherit the pipe
/// ends, and keep them open while it waits at its own barrier.
static FORKING: Mutex<()> = Mutex::new(());

/// Child that waits at the barrier. Dropping it ends the child.
#[derive(Debug)]
pub struct Launch {
    command: OsString,
    child: Child,
    barrier: PipeWriter,
    failures: PipeReader,
}

impl Launch {
    /// Forks a child that will execute the command `argv`, with the privileges of `identity`, or memtrace's own.
    ///
    /// The executable is searched as in a shell: in the directories of `PATH`, unless the name contains a slash.
    ///
    /// # Errors
    ///
    /// [`LaunchError::NotFound`], [`LaunchError::NotRunnable`] for a file that is not executable, and
    /// [`LaunchError::Start`] if the child cannot be created.
    pub fn prepare(argv: &[OsString], identity: Option<&Identity>) -> Result<Self, LaunchError> {
        let command = argv.first().filter(|command| !command.is_empty());
        let command = command.ok_or_else(|| LaunchError::NotFound { command: OsString::new() })?.clone();
        let start = |step| move |source| LaunchError::Start { step, source };
        let path = std::env::var_os("PATH");
        let paths = path::candidates(&command, path.as_deref());
        if path::find(&command, path.as_deref()).is_none() {
            // Fail before probes are attached. The kernel may still refuse to execute the file.
            return Err(if paths.iter().any(|path| path.exists()) {
                let source = io::Error::from(io::ErrorKind::PermissionDenied);
                LaunchError::NotRunnable { command, source }
            } else {
                LaunchError::NotFound { command }
            });
        }
        let plan = Plan {
            paths: strings(paths.into_iter().map(Into::into)).map_err(start("its path"))?,
            arguments: Strings::new(strings(argv.iter().cloned()).map_err(start("its arguments"))?),
            environment: Strings::new(
                strings(identity::environment(std::env::vars_os(), identity)).map_err(start("its environment"))?,
            ),
            identity: identity.cloned(),
        };
        let _one_at_a_time = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        let (waiting, barrier) = io::pipe().map_err(start("pipe"))?;
        let (failures, reporting) = io::pipe().map_err(start("pipe"))?;
        let pid = child::fork(&plan, waiting.as_fd(), barrier.as_fd(), reporting.as_fd()).map_err(start("fork"))?;
        drop((waiting, reporting));
        let pidfd = open_pidfd(pid).map_err(start("pidfd_open"))?;
        Ok(Self { command, child: Child::new(pid, pidfd), barrier, failures })
    }

    /// Returns the child's pid, which the command keeps.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Returns a pidfd, which becomes readable when the child or the command exits.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.child.pidfd()
    }

    /// Stops the command and each process that it starts at every exec, until [`Child::resume`] or for two seconds. A
    /// thread calls `stopped` when an image has stopped. Call this before [`Self::release`].
    ///
    /// # Errors
    ///
    /// [`LaunchError::Start`] if the kernel refuses to trace the child.
    pub fn hold_execs(&mut self, stopped: impl Fn() + Send + 'static) -> Result<(), LaunchError> {
        let step = "ptrace, which --hold-exec needs";
        self.child.hold(stopped).map_err(|source| LaunchError::Start { step, source })
    }

    /// Lets the child execute the command, and returns after the exec.
    ///
    /// # Errors
    ///
    /// [`LaunchError::NotFound`], [`LaunchError::NotRunnable`], or [`LaunchError::Start`] if the child could not change
    /// its identity. [`LaunchError::Exited`] if the child was killed at the barrier. In all cases the child has been
    /// waited for.
    pub fn release(self) -> Result<Child, LaunchError> {
        let Self { command, mut child, mut barrier, failures } = self;
        if barrier.write_all(&[child::GO]).is_err() {
            child.wait().map_err(|source| LaunchError::Start { step: "waitpid", source })?;
            return Err(LaunchError::Exited(child.pid()));
        }
        // The pipe is close-on-exec: at a successful exec it closes without a report.
        let mut report = Vec::new();
        let read = failures.take(Failure::SIZE as u64).read_to_end(&mut report);
        read.map_err(|source| LaunchError::Start { step: "read", source })?;
        let Some(failure) = Failure::decode(&report) else { return Ok(child) };
        child.wait().map_err(|source| LaunchError::Start { step: "waitpid", source })?;
        Err(launch_error(command, failure))
    }
}

fn launch_error(command: OsString, failure: Failure) -> LaunchError {
    let source = io::Error::from_raw_os_error(failure.errno);
    if failure.step == Step::Identity {
        return LaunchError::Start { step: "dropping root privileges", source };
    }
    let is_there = path::candidates(&command, std::env::var_os("PATH").as_deref()).iter().any(|path| path.exists());
    match source.kind() {
        // The kernel returns the same error for a missing interpreter as for a missing file (execve(2), ENOENT).
        io::ErrorKind::NotFound if is_there => {
            let source = io::Error::new(source.kind(), "its interpreter does not exist");
            LaunchError::NotRunnable { command, source }
        }
        io::ErrorKind::NotFound => LaunchError::NotFound { command },
        // The error refers to an inaccessible directory of PATH.
        io::ErrorKind::PermissionDenied if !is_there && !path::has_slash(&command) => LaunchError::NotFound { command },
        _ => LaunchError::NotRunnable { command, source },
    }
}

fn strings(list: impl IntoIterator<Item = OsString>) -> io::Result<Vec<CString>> {
    list.into_iter().map(|text| CString::new(text.into_vec()).map_err(io::Error::from)).collect()
}

#[cfg(test)]
mod tests;
