//! heaptrack, as its own script runs it: a preloaded library that writes into a pipe, and a program that reads from it.
//!
//! The script's compressor is left out, in heaptrack's favour.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Where Debian's package `libheaptrack` has them.
const PRELOADED: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";
const INTERPRETER: &str = "/usr/lib/heaptrack/libexec/heaptrack_interpret";

/// heaptrack, waiting for a target to be started, or reading what one writes.
pub(crate) struct Heaptrack {
    pipe: PathBuf,
    interpreter: Child,
    /// Keeps the pipe from being at its end before the target has opened it.
    writer: Option<File>,
}

/// Whether it is installed.
pub(crate) fn is_installed() -> bool {
    [PRELOADED, INTERPRETER].into_iter().all(|path| Path::new(path).is_file())
}

impl Heaptrack {
    /// Starts the reader, which writes to `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let pipe = folder.join("heaptrack.pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().context("cannot run mkfifo")?;
        if !made.success() {
            bail!("cannot make {}", pipe.display());
        }
        // Both ends at once (fifo(7)): to open a single one waits for the other.
        let both = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&pipe)?;
        let output = File::create(folder.join("heaptrack.data"))?;
        let reader = File::open(&pipe)?;
        let interpreter = Command::new(INTERPRETER)
            .stdin(reader)
            .stdout(output)
            // Statistics.
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {INTERPRETER}"))?;
        Ok(Self { pipe, interpreter, writer: Some(both) })
    }

    /// What the target's environment needs.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", PRELOADED.into()), ("DUMP_HEAPTRACK_OUTPUT", self.pipe.clone().into_os_string())]
    }

    /// Waits until all that the target has written is read, the target having ended.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.writer = None;
        let status = self.interpreter.wait().context("heaptrack cannot be waited for")?;
        fs::remove_file(&self.pipe).with_context(|| format!("cannot remove {}", self.pipe.display()))?;
        if !status.success() {
            bail!("heaptrack ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Heaptrack {
    fn drop(&mut self) {
        // Both fail only when it has already ended.
        let _ = self.interpreter.kill();
        let _ = self.interpreter.wait();
    }
}
