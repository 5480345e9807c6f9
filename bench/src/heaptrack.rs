//! heaptrack, run as its script does: a preloaded library writes to a pipe, from which an interpreter reads.
//!
//! The compressor of the script is omitted, which favours heaptrack.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Paths in Debian's package `libheaptrack`.
const PRELOADED: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";
const INTERPRETER: &str = "/usr/lib/heaptrack/libexec/heaptrack_interpret";

/// The interpreter, which waits for a target or reads its output.
pub(crate) struct Heaptrack {
    pipe: PathBuf,
    interpreter: Child,
    /// Keeps the pipe open for writing until the target has opened it.
    writer: Option<File>,
}

pub(crate) fn is_installed() -> bool {
    [PRELOADED, INTERPRETER].into_iter().all(|path| Path::new(path).is_file())
}

impl Heaptrack {
    /// Starts the interpreter, which writes to `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let pipe = folder.join("heaptrack.pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().context("cannot run mkfifo")?;
        if !made.success() {
            bail!("cannot make {}", pipe.display());
        }
        // Opening one end blocks until the other is open (fifo(7)).
        let writer = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&pipe)?;
        let output = File::create(folder.join("heaptrack.data"))?;
        let reader = File::open(&pipe)?;
        let interpreter = Command::new(INTERPRETER)
            .stdin(reader)
            .stdout(output)
            // Statistics.
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {INTERPRETER}"))?;
        Ok(Self { pipe, interpreter, writer: Some(writer) })
    }

    /// Returns the environment of the target.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", PRELOADED.into()), ("DUMP_HEAPTRACK_OUTPUT", self.pipe.clone().into_os_string())]
    }

    /// Waits until the interpreter has read all output of the target, which must have exited.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.writer = None;
        let status = self.interpreter.wait().context("cannot wait for heaptrack")?;
        fs::remove_file(&self.pipe).with_context(|| format!("cannot remove {}", self.pipe.display()))?;
        if !status.success() {
            bail!("heaptrack ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Heaptrack {
    fn drop(&mut self) {
        // Both fail only if it has exited.
        let _ = self.interpreter.kill();
        let _ = self.interpreter.wait();
    }
}
