//! Runs tests in lanes: sequences of tests that run at the same time. The processes of a lane have their own copy of
//! the C library.
//!
//! Two traces with probes in one file slow each other down: if a trace covers several processes, every process that
//! maps the file executes its probes. A copy that is mounted over the C library is another file, with the usual path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::binaries::Binary;
use super::execute::{self, PRIVILEGED_DEADLINE};
use super::results::{BinaryResult, Group, Results};
use super::topics::Topic;
use crate::privilege::Root;
use crate::workspace::{self, Workspace};
use crate::{command, parallel, ui};

/// Number of lanes. A trace and its victim together keep about one processor busy.
const LANES: usize = 2;

/// Environment variable with the index of the lane, for tests in a lane.
const VARIABLE: &str = "MEMTRACE_LANE";

/// Shell script that mounts the copy `$0` over the file `$1`, and runs the other words as a command.
const MOUNT: &str = r#"mount --bind "$0" "$1" && shift && exec "$@""#;

/// Runs the topics in lanes. An idle lane runs the next topic.
pub(super) fn run(
    workspace: &Workspace,
    root: Root,
    binary: &Binary,
    topics: &[Topic],
    results: &mut Results,
) -> Result<()> {
    let library = c_library()?;
    let copies = copy(workspace, &library)?;
    let outcomes = parallel::map(LANES, topics, |lane, topic| {
        ui::note(&format!("lane {lane}: {}, {} tests", topic.name, topic.tests.len()));
        let command = binary.privileged_command(root, PRIVILEGED_DEADLINE, &wrapper(lane, &copies[lane], &library));
        execute::run_listed_beside_others(command, &topic.tests)
    });
    for (topic, outcome) in topics.iter().zip(outcomes) {
        add(results, topic, outcome?);
    }
    Ok(())
}

/// Runs the topics one after the other. `wrapper`: words before the path of the test binary.
pub(super) fn run_alone(
    root: Root,
    binary: &Binary,
    wrapper: &[String],
    topics: &[Topic],
    results: &mut Results,
) -> Result<()> {
    for topic in topics {
        ui::note(&format!("{}, {} tests", topic.name, topic.tests.len()));
        let result = execute::run_listed(binary.privileged_command(root, PRIVILEGED_DEADLINE, wrapper), &topic.tests)?;
        add(results, topic, result);
    }
    Ok(())
}

fn add(results: &mut Results, topic: &Topic, result: BinaryResult) {
    for test in result.missing(&topic.tests) {
        results.problem(format!("{test} did not run"));
    }
    results.add_required(Group::Privileged, &topic.name, result);
}

/// Returns the words to put before a command so that it runs in a lane.
fn wrapper(lane: usize, copy: &Path, library: &Path) -> Vec<String> {
    let words = ["env", &format!("{VARIABLE}={lane}"), "unshare", "--mount", "sh", "-c", MOUNT].map(str::to_owned);
    let files = [copy, library].map(|path| path.display().to_string());
    words.into_iter().chain(files).collect()
}

/// Returns the path of the C library.
fn c_library() -> Result<PathBuf> {
    let path = command::answer(Command::new("gcc").arg("-print-file-name=libc.so.6")).context("gcc cannot be run")?;
    fs::canonicalize(&path).with_context(|| format!("there is no C library at {path}"))
}

/// Makes a copy of the library for each lane.
fn copy(workspace: &Workspace, library: &Path) -> Result<Vec<PathBuf>> {
    let folder = workspace.join("target/lanes");
    workspace::create_empty(&folder)?;
    let copies: Vec<PathBuf> = (0..LANES).map(|lane| folder.join(format!("libc.{lane}.so"))).collect();
    for copy in &copies {
        fs::copy(library, copy).with_context(|| format!("cannot copy {}", library.display()))?;
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_has_its_copy_and_its_number() {
        let words = wrapper(1, Path::new("/copy"), Path::new("/lib/libc.so.6"));
        assert_eq!(words[..4], ["env", "MEMTRACE_LANE=1", "unshare", "--mount"]);
        assert_eq!(words[words.len() - 2..], ["/copy", "/lib/libc.so.6"]);
    }
}
