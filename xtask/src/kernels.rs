//! Tests on other kernels, in guests under software emulation.
//!
//! A guest sees this machine's files, with a layer over them that takes what it writes; so what was built here runs there
//! as it is.

mod bzimage;
mod cpio;
mod features;
mod guest;
mod obtain;
mod selection;
mod supported;
mod transcript;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bpf_sources::Variant;
use features::Features;
pub(crate) use features::write as write_table;
pub(crate) use guest::EMULATOR;
use obtain::Image;
pub(crate) use supported::{Kernel, asked_for};
use transcript::{Script, Transcript};

use crate::test::{Binary, Group, PRIVILEGED_PACKAGE, Tally};
use crate::verified::{self, Verdict, Verdicts};
use crate::workspace::Workspace;
use crate::{command, say};

/// When a guest is ended that runs tests: one that hangs must not hold everything up.
const DEADLINE: Duration = Duration::from_secs(600);

/// When a test program in a guest is ended, in seconds.
const PART_SECONDS: u64 = 300;

/// When a guest is ended that asks its verifier.
const VERIFYING: Duration = Duration::from_secs(120);

/// The most instructions that a verifier may walk through: the kernel gives up at 1,000,000 (`BPF_COMPLEXITY_LIMIT_INSNS`,
/// include/linux/bpf.h), and the next compiler or kernel may need more.
const MOST_VERIFIED: u64 = 600_000;

/// Optimised, since guests are slow; in a folder of its own, since the tests look for another memtrace beside them.
const PROFILE: &str = "release";

/// The kernel that is always tested on.
pub(crate) fn usual() -> Vec<&'static Kernel> {
    supported::ALL.iter().filter(|kernel| kernel.name == supported::USUAL).collect()
}

/// Makes the kernels ready; those that cannot be had are told when they are tested on.
pub(crate) fn fetch(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    obtain::busybox(workspace)?;
    for kernel in kernels {
        if let Err(error) = obtain::kernel(workspace, kernel) {
            say::warning(&format!("{error:#}"));
        }
    }
    Ok(())
}

/// Runs the tests for guests on each of the kernels.
///
/// # Errors
///
/// When nothing can be run. What goes wrong with a kernel is in the tally.
pub(crate) fn run_tests(
    workspace: &Workspace,
    kernels: &[&'static Kernel],
    binaries: &[Binary],
    tally: &mut Tally,
) -> Result<()> {
    let memtrace = build_memtrace(workspace)?;
    for kernel in kernels {
        say::step(&format!("Running the tests for guests on Linux {}", kernel.name));
        let begun = Instant::now();
        if let Err(error) = run_tests_on(workspace, kernel, &memtrace, binaries, tally) {
            tally.problem(format!("Linux {}: {error:#}", kernel.name));
        }
        say::note(&format!("Linux {} took {} s", kernel.name, begun.elapsed().as_secs()));
    }
    Ok(())
}

fn build_memtrace(workspace: &Workspace) -> Result<PathBuf> {
    say::step("Building the memtrace that guests run");
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["build", "--package", "memtrace", "--profile", PROFILE]);
    command::run(&mut cargo)?;
    Ok(workspace.join("target").join(PROFILE).join("memtrace"))
}

const DOCTOR: &str = "memtrace doctor";

fn run_tests_on(
    workspace: &Workspace,
    kernel: &Kernel,
    memtrace: &Path,
    binaries: &[Binary],
    tally: &mut Tally,
) -> Result<()> {
    let memtrace = text(memtrace)?;
    let mut script = Script::with(&[("MEMTRACE_BIN", memtrace), ("RUST_BACKTRACE", "0")]);
    script.part(DOCTOR, "/", PART_SECONDS, &[memtrace, "doctor", "--json"]);
    let mut wanted = Vec::new();
    for file in selection::FILES {
        let is_it = |binary: &&Binary| binary.package == PRIVILEGED_PACKAGE && binary.target == file.name;
        let binary = binaries.iter().find(is_it).with_context(|| format!("there are no tests {}", file.name))?;
        let words = [&[text(&binary.program)?], &file.arguments()[..]].concat();
        script.part(file.name, text(&binary.folder)?, PART_SECONDS, &words);
        wanted.push((file.name, file.expected(&binary.program)?));
    }
    let transcript = boot(workspace, kernel, script, DEADLINE, tally)?;
    for (name, expected) in wanted {
        let row = format!("Linux {} {name}", kernel.name);
        match transcript.part(name) {
            Some(part) => {
                tally.add_required(Group::Guests, &row, part.ran());
                part.compare(&expected).into_iter().for_each(|problem| tally.problem(format!("{row}: {problem}")));
            }
            None => tally.problem(format!("{row}: did not run")),
        }
    }
    let told = transcript.part(DOCTOR).context("doctor did not run")?.text();
    let features = Features::read(&told)?;
    Features::keep(workspace, kernel, &told)?;
    let problems = features::compare(workspace, kernel, &features)?;
    problems.into_iter().for_each(|problem| tally.problem(format!("Linux {}: {problem}", kernel.name)));
    Ok(())
}

/// Boots the kernel and runs the script. That the guest did not come to its end is a problem; what it wrote before still
/// counts.
fn boot(
    workspace: &Workspace,
    kernel: &Kernel,
    script: Script,
    deadline: Duration,
    tally: &mut Tally,
) -> Result<Transcript> {
    let (transcript, trouble) = boot_for(workspace, kernel, script, deadline)?;
    trouble.into_iter().for_each(|trouble| tally.problem(format!("Linux {}: {trouble}", kernel.name)));
    Ok(transcript)
}

fn boot_for(
    workspace: &Workspace,
    kernel: &Kernel,
    script: Script,
    deadline: Duration,
) -> Result<(Transcript, Option<String>)> {
    let image: Image = obtain::kernel(workspace, kernel)?;
    let busybox = obtain::busybox(workspace)?;
    let folder = workspace.join("target/kernels/guest");
    let mut transcript = Transcript::default();
    let ended = guest::run(&image, &busybox, &folder, &script.finish(), deadline, |line| {
        say::result(line);
        transcript.read_line(line);
    })?;
    let trouble = (ended.told != Some(0) || !transcript.is_whole()).then(|| ended.explain(deadline));
    Ok((transcript, trouble))
}

/// Prints what the verifier of each kernel walks through, program by program.
///
/// # Errors
///
/// Where a kernel cannot be had, refuses a program, or walks through too much.
pub(crate) fn verify(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    const PART: &str = "verifier";
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    let root = text(workspace.root())?.to_owned();
    let mut problems = Vec::new();
    let mut columns = Vec::new();
    for kernel in kernels {
        say::step(&format!("Asking the verifier of Linux {}", kernel.name));
        let mut script = Script::with(&[]);
        script.part(PART, &format!("{root}/xtask"), PART_SECONDS, &[text(&program)?, "bpf", "verified"]);
        match boot_for(workspace, kernel, script, VERIFYING) {
            Err(error) => problems.push(format!("Linux {}: {error:#}", kernel.name)),
            Ok((transcript, trouble)) => {
                problems.extend(trouble.map(|trouble| format!("Linux {}: {trouble}", kernel.name)));
                let part = transcript.part(PART).cloned().unwrap_or_default();
                if part.status != Some(0) {
                    problems.push(format!("Linux {} does not tell of the programs; its words are above", kernel.name));
                }
                columns.push((*kernel, verified::read(&part.text())));
            }
        }
    }
    for (kernel, verdicts) in &columns {
        for (program, verdict) in verdicts {
            let shown = match verdict {
                Verdict::Accepted(Some(count)) => count.to_string(),
                Verdict::Accepted(None) => String::from(verified::UNTOLD),
                Verdict::Refused(words) => format!("refused: {words}"),
            };
            say::result(&format!("{:<6} {program:<30} {shown:>8}", kernel.name));
        }
        problems.extend(unexpected(kernel, verdicts));
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}

/// What is wrong with a verifier's verdicts.
fn unexpected(kernel: &Kernel, verdicts: &Verdicts) -> Vec<String> {
    let name = kernel.name;
    let is_of = |program: &str, variant| program.starts_with(verified::PLAIN) == (variant == Variant::Plain);
    let refusals = || {
        verdicts.iter().filter_map(|(program, verdict)| match verdict {
            Verdict::Refused(words) => Some((program, words)),
            Verdict::Accepted(_) => None,
        })
    };
    let mut problems = Vec::new();
    for (program, words) in refusals() {
        if !kernel.refuses.iter().any(|(variant, known)| is_of(program, *variant) && words.contains(known)) {
            problems.push(format!("Linux {name} refuses {program}: {words}"));
        }
    }
    for (variant, known) in kernel.refuses {
        if !refusals().any(|(program, words)| is_of(program, *variant) && words.contains(known)) {
            problems.push(format!("Linux {name} refuses no program with {known:?}, as it is said to"));
        }
    }
    for (program, verdict) in verdicts {
        if matches!(verdict, Verdict::Accepted(Some(count)) if *count > MOST_VERIFIED) {
            problems.push(format!("Linux {name}: {program} takes more than {MOST_VERIFIED} instructions"));
        }
    }
    problems
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} cannot be handed to a guest", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_must_take_or_refuse_the_programs_as_it_is_said_to() {
        let kernel = |refuses| Kernel { name: "1.0", suites: &[], refuses };
        let told = |text| verified::read(text);
        let (takes, refuses) = (kernel(&[]), kernel(&[(Variant::Usual, "no atomics")]));
        assert_eq!(unexpected(&takes, &told("free 1\nplain_free -")), [""; 0]);
        assert_eq!(unexpected(&takes, &told("free 600001")).len(), 1);
        assert_eq!(unexpected(&takes, &told("free refused: no atomics")).len(), 1);
        assert_eq!(unexpected(&refuses, &told("free refused: no atomics\nplain_free 1")), [""; 0]);
        assert_eq!(unexpected(&refuses, &told("free refused: out of memory")).len(), 2);
        assert_eq!(unexpected(&refuses, &told("plain_free refused: no atomics")).len(), 2);
        assert_eq!(unexpected(&refuses, &told("free 1")).len(), 1);
    }
}
