//! Undoes changes of the kernel's state, even if memtrace is killed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

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
        let shell = Command::new("sh")
            // `read` returns when no process holds the other end of the pipe.
            .args(["-c", &format!("read _; {script}")])
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C must not end the shell.
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
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
}
