//! Runs commands as root: directly if xtask runs as root, else with sudo.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// Method to run programs as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// xtask runs as root.
    Direct,
    /// sudo runs the programs.
    Sudo,
}

impl Root {
    /// Finds a method. sudo may ask for a password only if standard input is a terminal.
    pub(crate) fn obtain() -> Result<Self> {
        // The owner of /proc/self is the effective user (proc(5)).
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

    /// Returns a command that runs `program` as root.
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
