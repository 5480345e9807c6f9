//! Runs heaptrack like its shell script does: a preloaded library writes to a pipe, and an interpreter reads from the
//! pipe. The script also compresses the output. This is omitted here, which favours heaptrack.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Paths in Debian's package `libheaptrack`.
const PRELOADED: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";
const INTERPRETER: &str = "/usr/lib/heaptrack/libexec/heaptrack_interpret";

/// Running interpreter of heaptrack.
pub(crate) struct Heaptrack {
    pipe: PathBuf,
    interpreter: Child,
    /// Keeps the pipe open for writing. Otherwise the interpreter would read the end of the pipe before the target
    /// opens the pipe.
    writer: Option<File>,
}

pub(crate) fn is_installed() -> bool {
    [PRELOADED, INTERPRETER].into_iter().all(|path| Path::new(path).is_file())
}

impl Heaptrack {
    /// Starts the interpreter. It writes to `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let pipe = folder.join("heaptrack.pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().context("cannot run mkfifo")?;
        if !made.success() {
            bail!("cannot make {}", pipe.display());
        }
        // Opening one end blocks until the other end is open (fifo(7)), so this call opens both.
        let writer = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&pipe)?;
        let output = File::create(folder.join("heaptrack.data"))?;
        let reader = File::open(&pipe)?;
        let interpreter = Command::new(INTERPRETER)
            .stdin(reader)
            .stdout(output)
            // The interpreter prints statistics.
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {INTERPRETER}"))?;
        Ok(Self { pipe, interpreter, writer: Some(writer) })
    }

    /// Returns the environment variables that the target needs.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", PRELOADED.into()), ("DUMP_HEAPTRACK_OUTPUT", self.pipe.clone().into_os_string())]
    }

    /// Waits until the interpreter has read all output of the target. The target must have exited.
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
        // These calls fail only if the interpreter has exited.
        let _ = self.interpreter.kill();
        let _ = self.interpreter.wait();
    }
}
