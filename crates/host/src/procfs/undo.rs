//! Undoes changes of the kernel's state, even if memtrace is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// Line that makes the process end without running the script.
const KEEP: &str = "keep";

/// Process that runs a shell script when this value is dropped, or when memtrace ends for any reason.
#[derive(Debug)]
pub(super) struct Undo {
    shell: Child,
}

impl Undo {
    /// Starts the process. In the script, `$0` is `argument`.
    ///
    /// # Errors
    ///
    /// Errors of the start, such as a missing shell.
    pub(super) fn at_end(script: &str, argument: &OsStr) -> io::Result<Self> {
        Self::start(script, argument, Stdio::null())
    }

    /// Starts the process, which holds the lock of a file until the script has run (flock(2)).
    ///
    /// # Errors
    ///
    /// Errors of the start, such as a missing shell.
    pub(super) fn at_end_with_lock(script: &str, argument: &OsStr, locked: File) -> io::Result<Self> {
        Self::start(script, argument, locked.into())
    }

    fn start(script: &str, argument: &OsStr, output: Stdio) -> io::Result<Self> {
        let shell = Command::new("sh")
            // `read` returns when no process holds the other end of the pipe.
            .args(["-c", &format!("read -r answer; [ \"$answer\" = {KEEP} ] || {{ {script}; }}")])
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::null())
            // Ctrl-C must not end the shell.
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }

    /// Ends the process without running the script.
    pub(super) fn cancel(mut self) {
        if let Some(input) = &mut self.shell.stdin {
            // If the write fails, the shell has ended.
            let _ = writeln!(input, "{KEEP}");
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // The changes are complete after the shell has exited.
        if let Err(error) = self.shell.wait() {
            log::warn!("cannot wait for the shell that restores the state of the kernel: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::Scratch;

    use super::*;

    #[test]
    fn script_has_run_after_the_drop() {
        let scratch = Scratch::new();
        let file = scratch.join("state of the kernel");
        let undo = Undo::at_end("echo 0 >\"$0\"", file.as_os_str()).unwrap();
        assert!(!file.exists());
        drop(undo);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "0\n");
    }

    #[test]
    fn cancelled_script_does_not_run() {
        let scratch = Scratch::new();
        let file = scratch.join("state of the kernel");
        Undo::at_end("echo 0 >\"$0\"", file.as_os_str()).unwrap().cancel();
        assert!(!file.exists());
    }
}
