//! Runs a test binary, prints its output, and parses the results.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::results::BinaryResult;
use crate::workspace::Workspace;
use crate::{command, ui};

/// Selection of the tests of a binary.
#[derive(Clone, Copy)]
pub(super) enum Selection {
    All,
    /// Tests with this in their path.
    Only(&'static str),
    /// Tests without this in their path.
    Without(&'static str),
}

/// Runs the selected tests of the binary that `command` runs.
pub(super) fn run(mut command: Command, selection: Selection) -> Result<BinaryResult> {
    match selection {
        Selection::All => {}
        Selection::Only(part) => {
            command.arg(part);
        }
        Selection::Without(part) => {
            command.args(["--skip", part]);
        }
    }
    stream(command)
}

/// Runs the documentation tests of all packages.
pub(super) fn doc_tests(workspace: &Workspace) -> Result<BinaryResult> {
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    stream(cargo)
}

fn stream(mut command: Command) -> Result<BinaryResult> {
    let shown = command::shown(&command);
    ui::note(&shown);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut result = BinaryResult::default();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).context("cannot read the output of the tests")? > 0 {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            result.read_line(text);
            ui::result(text);
            line.clear();
        }
    }
    result.end(child.wait().with_context(|| format!("cannot wait for {shown}"))?);
    Ok(result)
}
