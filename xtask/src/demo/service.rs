//! The demo service as a child process.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Maximum run time of the service, which then exits by itself. The demo is shorter.
const LIMIT: &str = "120s";

/// The running service. Dropping this value kills it.
pub(super) struct Service {
    child: Child,
}

impl Service {
    /// Starts `program` and waits until it prints `ready pid N`.
    pub(super) fn start(program: &Path) -> Result<Self> {
        let child = Command::new(program)
            .args(["--for", LIMIT])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let mut service = Self { child };
        let mut line = String::new();
        if let Some(stdout) = service.child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).context("cannot read the output of the demo service")?;
        }
        if line.trim() != format!("ready pid {}", service.pid()) {
            bail!("the demo service is not ready; it wrote {:?}", line.trim());
        }
        Ok(service)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The call fails if the service has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
