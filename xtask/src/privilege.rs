//! Becoming root: directly where it is so already, else by sudo.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// How programs are run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// This process is root.
    Direct,
    /// Through sudo, which has agreed.
    Sudo,
}

impl Root {
    /// Finds a way; sudo may ask for a password when there is a terminal to ask on.
    pub(crate) fn obtain() -> Result<Self> {
        // The owner of a process' directory is its effective user (proc(5)).
        if fs::metadata("/proc/self")?.uid() == 0 {
            return Ok(Self::Direct);
        }
        let mut sudo = Command::new("sudo");
        if !io::stdin().is_terminal() {
            sudo.arg("-n").stdin(Stdio::null());
        }
        match sudo.arg("true").status() {
            Ok(status) if status.success() => Ok(Self::Sudo),
            Ok(_) => bail!("this needs root, and sudo does not allow it"),
            Err(error) => bail!("this needs root, and sudo cannot be run: {error}"),
        }
    }

    /// A command that runs `program` as root.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Direct => Command::new(program),
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.arg("-E").arg(program);
                command
            }
        }
    }
}
