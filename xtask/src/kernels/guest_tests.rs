//! Runs tests in a guest and collects their results.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::arm64;
use super::boot::boot;
use super::features::{self, Features};
use super::selection::Share;
use super::supported::Kernel;
use super::transcript::{Script, Transcript, text};
use crate::test::{Binary, BinaryResult, REPORT_TIME, UNSTABLE, list_tests, privileged};
use crate::workspace::Workspace;

/// Time limit of a guest that runs tests.
const DEADLINE: Duration = Duration::from_secs(1800);

/// Time limit of one command of a script, in seconds.
pub(super) const PART_SECONDS: u64 = 600;

const DOCTOR: &str = "memtrace doctor";

/// Results of a [`Share`].
#[derive(Default)]
pub(super) struct Outcome {
    /// Names and results of the topics.
    pub(super) rows: Vec<(String, BinaryResult)>,
    /// Problems that are not failed tests.
    pub(super) problems: Vec<String>,
}

/// Runs a share of the guest tests, with the files of this machine. The first share also checks the kernel's features.
pub(super) fn run(workspace: &Workspace, share: &Share, binaries: &[Binary]) -> Result<Outcome> {
    let kernel = share.kernel;
    // The features of a kernel with few options are not checked, because it lacks features that other kernels of its
    // version have.
    let is_first = share.number == 1 && kernel.config.is_none() && kernel.is_supported;
    let binary = privileged(binaries)?;
    let memtrace = binary.neighbour("memtrace")?;
    let memtrace = text(&memtrace)?;
    let mut script = Script::with(&[("MEMTRACE_GUEST", "1"), ("RUST_BACKTRACE", "0"), UNSTABLE]);
    if is_first {
        script.part(DOCTOR, "/", PART_SECONDS, &[memtrace, "doctor", "--json"]);
    }
    let mut expected_tests = Vec::new();
    let all = list_tests(&binary.program)?;
    for topic in &share.topics {
        let expected = topic.expected(&all)?;
        let words = [&[text(&binary.program)?, "--test-threads=1", "--exact"], REPORT_TIME].concat();
        let words: Vec<&str> = words.into_iter().chain(expected.iter().map(String::as_str)).collect();
        script.part(topic.name, text(&binary.folder)?, PART_SECONDS, &words);
        expected_tests.push((topic.name, expected));
    }
    let guest = format!("{}/{}", kernel.name, share.number);
    let (transcript, problem) = boot(workspace, kernel, &guest, script, DEADLINE)?;
    let mut outcome = Outcome::default();
    outcome.problems.extend(problem);
    for (name, expected) in expected_tests {
        match transcript.part(name) {
            Some(part) => {
                outcome.rows.push((name.to_owned(), part.result()));
                outcome.problems.extend(part.compare(&expected).iter().map(|problem| format!("{name}: {problem}")));
            }
            None => outcome.problems.push(format!("{name} did not run")),
        }
    }
    if is_first {
        check_features(workspace, kernel, &transcript, &mut outcome)?;
    }
    Ok(outcome)
}

/// Traces a victim in a guest of another architecture.
pub(super) fn trace(workspace: &Workspace, kernel: &Kernel) -> Result<Outcome> {
    const NAME: &str = "trace";
    let mut script = Script::with(&[]);
    script.part(DOCTOR, "/", PART_SECONDS, &[arm64::MEMTRACE, "doctor", "--json"]);
    script.part(NAME, "/", PART_SECONDS, &arm64::TRACE);
    let (transcript, problem) = boot(workspace, kernel, kernel.name, script, DEADLINE)?;
    let mut outcome = Outcome::default();
    outcome.problems.extend(problem);
    let part = transcript.part(NAME).context("the victim was not traced")?;
    let mut result = BinaryResult::default();
    match arm64::compare(&part.text()) {
        Ok(()) if part.status == Some(0) => result.read_line("test result: ok. 1 passed; 0 failed"),
        compared => {
            result.read_line("test result: FAILED. 0 passed; 1 failed");
            let reason = compared.err().map_or_else(|| String::from("memtrace failed"), |error| format!("{error:#}"));
            outcome.problems.push(format!("{NAME}: {reason}"));
        }
    }
    outcome.rows.push((NAME.to_owned(), result));
    check_features(workspace, kernel, &transcript, &mut outcome)?;
    Ok(outcome)
}

fn check_features(
    workspace: &Workspace,
    kernel: &Kernel,
    transcript: &Transcript,
    outcome: &mut Outcome,
) -> Result<()> {
    let output = transcript.part(DOCTOR).context("doctor did not run")?.text();
    let features = Features::parse(&output)?;
    Features::save(workspace, kernel, &output)?;
    outcome.problems.extend(features::compare(workspace, kernel, &features)?);
    Ok(())
}
