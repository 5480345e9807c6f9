//! Runs a test program, shows what it writes as it comes, and reads its result from it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::results::Ran;
use crate::workspace::Workspace;
use crate::{command, ui};

/// Which tests of a program are run.
#[derive(Clone, Copy)]
pub(super) enum Selection {
    All,
    /// Those whose path contains this.
    Only(&'static str),
    /// Those whose path does not.
    Without(&'static str),
}

/// Runs the selected tests of the program that `command` runs.
pub(super) fn run(mut command: Command, selection: Selection) -> Result<Ran> {
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

/// Runs the examples in the documentation of all packages.
pub(super) fn doc_tests(workspace: &Workspace) -> Result<Ran> {
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    stream(cargo)
}

fn stream(mut command: Command) -> Result<Ran> {
    let shown = command::shown(&command);
    ui::note(&shown);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut ran = Ran::default();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).context("cannot read what the tests write")? > 0 {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            ran.read_line(text);
            ui::result(text);
            line.clear();
        }
    }
    ran.end(child.wait().with_context(|| format!("cannot wait for {shown}"))?);
    Ok(ran)
}
