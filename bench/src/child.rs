//! A child process that is spoken to line by line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child as StdChild, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// Set by sudo; a traced command is to run as everything else here does.
const SUDO: [&str; 3] = ["SUDO_UID", "SUDO_GID", "SUDO_USER"];

/// A running child, killed when it is dropped. That it can't be waited for in vain is its starter's concern: whoever runs
/// the benchmarks gives them a deadline.
pub(crate) struct Child {
    name: String,
    child: StdChild,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    errors: Option<BufReader<ChildStderr>>,
}

/// What becomes of a child's standard error.
#[derive(Clone, Copy)]
pub(crate) enum Errors {
    /// It is for people to see.
    Shown,
    /// It is read here.
    Read,
}

impl Child {
    /// Starts it, with its input and output in our hands.
    pub(crate) fn start(command: &mut Command, errors: Errors) -> Result<Self> {
        for name in SUDO {
            command.env_remove(name);
        }
        let errors = match errors {
            Errors::Shown => Stdio::inherit(),
            Errors::Read => Stdio::piped(),
        };
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Self { name, child, input, output: output.map(BufReader::new), errors: errors.map(BufReader::new) })
    }

    /// Writes a line to its input.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        writeln!(input, "{line}").with_context(|| format!("{} does not listen", self.name))
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if let Some(output) = &mut self.output {
            output.read_line(&mut line).with_context(|| format!("{} cannot be read", self.name))?;
        }
        if line.is_empty() {
            let words = self.last_words();
            bail!("{} ended its output{words}", self.name);
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for a line of its errors that begins so.
    pub(crate) fn wait_for_error(&mut self, beginning: &str) -> Result<()> {
        let mut seen = String::new();
        let errors = self.errors.as_mut().context("its errors are not read here")?;
        loop {
            let start = seen.len();
            if errors.read_line(&mut seen).with_context(|| format!("{} cannot be read", self.name))? == 0 {
                bail!("{} ended without {beginning:?}: {}", self.name, seen.trim());
            }
            if seen[start..].starts_with(beginning) {
                return Ok(());
            }
        }
    }

    fn last_words(&mut self) -> String {
        let mut words = String::new();
        if let Some(errors) = &mut self.errors {
            // What can't be read can't be said.
            let _ = errors.read_to_string(&mut words);
        }
        if words.is_empty() { words } else { format!(": {}", words.trim()) }
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes its input, which asks a victim to end.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for its end; its standard error, where it is read here, comes along.
    pub(crate) fn wait(&mut self) -> Result<(ExitStatus, String)> {
        let words = self.last_words();
        let status = self.child.wait().with_context(|| format!("{} cannot be waited for", self.name))?;
        Ok((status, words))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only when it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
