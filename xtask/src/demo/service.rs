//! The demo service as a child, which never outlives the demo.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// What the service may run for should nobody end it; longer than the demo takes.
const LIMIT: &str = "120s";

/// The running service; ended when dropped.
pub(super) struct Service {
    child: Child,
}

impl Service {
    /// Starts `program` and waits for its line `ready pid N`.
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
            BufReader::new(stdout).read_line(&mut line).context("cannot read what the demo service writes")?;
        }
        if line.trim() != format!("ready pid {}", service.pid()) {
            bail!("the demo service did not get ready; it wrote {:?}", line.trim());
        }
        Ok(service)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
