//! Runs a test binary, prints its output, and parses the results.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::results::BinaryResult;
use crate::workspace::Workspace;
use crate::{command, ui};

/// Options that make a test binary print the duration of each test. The options are unstable, so the environment
/// variable [`UNSTABLE`] is needed too.
pub(crate) const REPORT_TIME: &[&str] = &["-Zunstable-options", "--report-time"];
/// Environment variable that enables unstable features, and its value.
pub(crate) const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// Time limit of a process that runs privileged tests. It matters only if a target hangs.
pub(super) const PRIVILEGED_DEADLINE: Duration = Duration::from_secs(20 * 60);

/// Selection of the tests of a binary.
#[derive(Clone, Copy)]
pub(super) enum Selection<'a> {
    /// Tests with this text in their path.
    Only(&'a str),
    /// Tests without any of these texts in their path.
    Without(&'a [&'a str]),
}

/// Runs the selected tests of the binary that `command` runs.
pub(super) fn run(command: Command, selection: Selection<'_>) -> Result<BinaryResult> {
    let command = with_selection(command, selection);
    ui::note(&command::shown(&command));
    stream(with_times(command), ui::result)
}

/// Runs the selected tests of the binary that `command` runs, while other binaries run. Prints the output at the end.
pub(super) fn run_beside_others(command: Command, selection: Selection<'_>) -> Result<BinaryResult> {
    let command = with_selection(command, selection);
    let shown = command::shown(&command);
    stream_at_end(with_times(command), || ui::note(&shown))
}

/// Runs `tests` of the binary that `command` runs.
pub(super) fn run_listed(command: Command, tests: &[String]) -> Result<BinaryResult> {
    stream(with_names(command, tests), ui::result)
}

/// Runs `tests` of the binary that `command` runs, while other binaries run. Prints the output at the end.
pub(super) fn run_listed_beside_others(command: Command, tests: &[String]) -> Result<BinaryResult> {
    stream_at_end(with_names(command, tests), || {})
}

/// Runs the documentation tests of all packages.
pub(super) fn doc_tests(workspace: &Workspace) -> Result<BinaryResult> {
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    ui::note(&command::shown(&cargo));
    stream(cargo, ui::result)
}

fn with_selection(mut command: Command, selection: Selection<'_>) -> Command {
    match selection {
        Selection::Only(part) => command.arg(part),
        Selection::Without(parts) => command.args(parts.iter().flat_map(|part| ["--skip", part])),
    };
    command
}

fn with_names(mut command: Command, tests: &[String]) -> Command {
    command.arg("--exact").args(tests);
    with_times(command)
}

fn with_times(mut command: Command) -> Command {
    let (name, value) = UNSTABLE;
    command.args(REPORT_TIME).env(name, value);
    command
}

/// Runs a command that prints test results. Calls `print_title` and prints the whole output when the command has ended. Returns
/// the parsed results.
fn stream_at_end(command: Command, print_title: impl FnOnce()) -> Result<BinaryResult> {
    let mut output = String::new();
    let result = stream(command, |line| {
        output.push_str(line);
        output.push('\n');
    })?;
    print_title();
    ui::result(&output);
    Ok(result)
}

/// Runs a command that prints test results, and passes each line of its output to `print`. Returns the parsed results.
fn stream(mut command: Command, mut print: impl FnMut(&str)) -> Result<BinaryResult> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
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
            print(text);
            line.clear();
        }
    }
    result.end(child.wait().with_context(|| format!("cannot wait for {shown}"))?);
    result.took(start.elapsed());
    Ok(result)
}
