//! What is run on a kernel, and what came of it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::boot::boot;
use super::features::{self, Features};
use super::selection::Share;
use super::supported::Kernel;
use super::transcript::{Script, Transcript};
use super::{arm64, text};
use crate::test::{Binary, PRIVILEGED_PACKAGE, Ran};
use crate::workspace::Workspace;

/// When a guest is ended that runs tests: one that hangs must not hold everything up.
const DEADLINE: Duration = Duration::from_secs(600);

/// When a program in a guest is ended, in seconds.
pub(super) const PART_SECONDS: u64 = 300;

const DOCTOR: &str = "memtrace doctor";

/// What came of a share of a kernel's tests.
#[derive(Default)]
pub(super) struct Outcome {
    /// What ran, by its name.
    pub(super) rows: Vec<(String, Ran)>,
    /// What is wrong that no test tells.
    pub(super) problems: Vec<String>,
}

/// Runs a share of the tests for guests with this machine's files; with the first of them it is looked at what the kernel has.
pub(super) fn run(workspace: &Workspace, share: &Share, memtrace: &Path, binaries: &[Binary]) -> Result<Outcome> {
    let (kernel, is_first) = (share.kernel, share.number == 1);
    let memtrace = text(memtrace)?;
    let mut script = Script::with(&[("MEMTRACE_BIN", memtrace), ("RUST_BACKTRACE", "0")]);
    if is_first {
        script.part(DOCTOR, "/", PART_SECONDS, &[memtrace, "doctor", "--json"]);
    }
    let mut wanted = Vec::new();
    for file in share.files {
        let is_it = |binary: &&Binary| binary.package == PRIVILEGED_PACKAGE && binary.target == file.name;
        let binary = binaries.iter().find(is_it).with_context(|| format!("there are no tests {}", file.name))?;
        let words = [&[text(&binary.program)?], &file.arguments()[..]].concat();
        script.part(file.name, text(&binary.folder)?, PART_SECONDS, &words);
        wanted.push((file.name, file.expected(&binary.program)?));
    }
    let guest = format!("{}/{}", kernel.name, share.number);
    let (transcript, trouble) = boot(workspace, kernel, &guest, script, DEADLINE)?;
    let mut outcome = Outcome::default();
    outcome.problems.extend(trouble);
    for (name, expected) in wanted {
        match transcript.part(name) {
            Some(part) => {
                outcome.rows.push((name.to_owned(), part.ran()));
                outcome.problems.extend(part.compare(&expected).iter().map(|problem| format!("{name}: {problem}")));
            }
            None => outcome.problems.push(format!("{name} did not run")),
        }
    }
    if is_first {
        look_at_features(workspace, kernel, &transcript, &mut outcome)?;
    }
    Ok(outcome)
}

/// Traces a victim in a guest of another machine.
pub(super) fn trace(workspace: &Workspace, kernel: &Kernel) -> Result<Outcome> {
    const NAME: &str = "trace";
    let mut script = Script::with(&[]);
    script.part(DOCTOR, "/", PART_SECONDS, &[arm64::MEMTRACE, "doctor", "--json"]);
    script.part(NAME, "/", PART_SECONDS, &arm64::TRACE);
    let (transcript, trouble) = boot(workspace, kernel, kernel.name, script, DEADLINE)?;
    let mut outcome = Outcome::default();
    outcome.problems.extend(trouble);
    let part = transcript.part(NAME).context("no victim was traced")?;
    let mut ran = Ran::default();
    match arm64::compare(&part.text()) {
        Ok(()) if part.status == Some(0) => ran.read_line("test result: ok. 1 passed; 0 failed"),
        compared => {
            ran.read_line("test result: FAILED. 0 passed; 1 failed");
            let why = compared.err().map_or_else(|| String::from("memtrace failed"), |error| format!("{error:#}"));
            outcome.problems.push(format!("{NAME}: {why}"));
        }
    }
    outcome.rows.push((NAME.to_owned(), ran));
    look_at_features(workspace, kernel, &transcript, &mut outcome)?;
    Ok(outcome)
}

fn look_at_features(
    workspace: &Workspace,
    kernel: &Kernel,
    transcript: &Transcript,
    outcome: &mut Outcome,
) -> Result<()> {
    let told = transcript.part(DOCTOR).context("doctor did not run")?.text();
    let features = Features::read(&told)?;
    Features::keep(workspace, kernel, &told)?;
    outcome.problems.extend(features::compare(workspace, kernel, &features)?);
    Ok(())
}
