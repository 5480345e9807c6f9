//! Runs the verifiers of other kernels on the BPF programs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::{BpfVariant, Machine};

use super::boot::boot;
use super::guest_tests::PART_SECONDS;
use super::supported::Kernel;
use super::transcript::{Script, Transcript};
use super::{arm64, text};
use crate::verifier::{self, Verdict, Verdicts};
use crate::workspace::Workspace;
use crate::{parallel, ui};

/// Time limit of a guest.
const DEADLINE: Duration = Duration::from_secs(120);

/// Limit of verified instructions, with a margin for other compilers and kernels. The kernel's limit is 1,000,000
/// (`BPF_COMPLEXITY_LIMIT_INSNS`, include/linux/bpf.h).
const MAX_VERIFIED: u64 = 600_000;

/// Prints each kernel's verdict on each program.
///
/// # Errors
///
/// If a kernel cannot boot, or if a verdict is not the expected one.
pub(crate) fn verify(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    let mut problems = Vec::new();
    let mut columns = Vec::new();
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        arm64::build(workspace)?;
    }
    let answers = parallel::map(parallel::processors(), kernels, |_, kernel| verify_on(workspace, kernel));
    for (kernel, answer) in kernels.iter().zip(answers) {
        match answer {
            Err(error) => problems.push(format!("Linux {}: {error:#}", kernel.name)),
            Ok((transcript, problem)) => {
                problems.extend(problem.map(|problem| format!("Linux {}: {problem}", kernel.name)));
                let part = transcript.part(PART).cloned().unwrap_or_default();
                if part.status != Some(0) {
                    problems.push(format!("Linux {}: cargo xtask bpf verify failed; its output is above", kernel.name));
                }
                columns.push((*kernel, verifier::parse_verdicts(&part.text())));
            }
        }
    }
    for (kernel, verdicts) in &columns {
        for (program, verdict) in verdicts {
            let shown = match verdict {
                Verdict::Accepted(Some(count)) => count.to_string(),
                Verdict::Accepted(None) => String::from(verifier::NO_COUNT),
                Verdict::Refused(log) => format!("refused: {log}"),
            };
            ui::result(&format!("{:<9} {program:<32} {shown:>8}", kernel.name));
        }
        problems.extend(unexpected(kernel, verdicts));
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}

const PART: &str = "verifier";

fn verify_on(workspace: &Workspace, kernel: &Kernel) -> Result<(Transcript, Option<String>)> {
    ui::step(&format!("Running the verifier of Linux {}", kernel.name));
    let mut script = Script::with(&[]);
    match kernel.machine {
        Machine::X86_64 => {
            let program = std::env::current_exe().context("cannot find the path of this program")?;
            let folder = workspace.join("xtask");
            script.part(PART, text(&folder)?, PART_SECONDS, &[text(&program)?, "bpf", "verify"]);
        }
        Machine::Aarch64 => script.part(PART, arm64::PACKAGE, PART_SECONDS, &[arm64::XTASK, "bpf", "verify"]),
    }
    boot(workspace, kernel, kernel.name, script, DEADLINE)
}

/// Compares a kernel's verdicts with the expected ones and returns the differences.
fn unexpected(kernel: &Kernel, verdicts: &Verdicts) -> Vec<String> {
    let name = kernel.name;
    let is_of =
        |program: &str, variant| program.starts_with(verifier::LEGACY_PREFIX) == (variant == BpfVariant::Legacy);
    let refusals = || {
        verdicts.iter().filter_map(|(program, verdict)| match verdict {
            Verdict::Refused(log) => Some((program, log)),
            Verdict::Accepted(_) => None,
        })
    };
    let mut problems = Vec::new();
    for (program, log) in refusals() {
        if !kernel.refuses.iter().any(|(variant, part)| is_of(program, *variant) && log.contains(part)) {
            problems.push(format!("Linux {name} refuses {program}: {log}"));
        }
    }
    for (variant, part) in kernel.refuses {
        if !refusals().any(|(program, log)| is_of(program, *variant) && log.contains(part)) {
            problems.push(format!("Linux {name} should refuse a program with {part:?}"));
        }
    }
    for (program, verdict) in verdicts {
        if matches!(verdict, Verdict::Accepted(Some(count)) if *count > MAX_VERIFIED) {
            problems.push(format!("Linux {name}: {program} has more than {MAX_VERIFIED} verified instructions"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_verdicts_are_reported() {
        let kernel = |refuses| Kernel { name: "1.0", machine: Machine::X86_64, suites: &[], config: None, refuses };
        let parse = |text| verifier::parse_verdicts(text);
        let (takes, refuses) = (kernel(&[]), kernel(&[(BpfVariant::Atomics, "no atomics")]));
        assert_eq!(unexpected(&takes, &parse("free 1\nlegacy_free -")), [""; 0]);
        assert_eq!(unexpected(&takes, &parse("free 600001")).len(), 1);
        assert_eq!(unexpected(&takes, &parse("free refused: no atomics")).len(), 1);
        assert_eq!(unexpected(&refuses, &parse("free refused: no atomics\nlegacy_free 1")), [""; 0]);
        assert_eq!(unexpected(&refuses, &parse("free refused: out of memory")).len(), 2);
        assert_eq!(unexpected(&refuses, &parse("legacy_free refused: no atomics")).len(), 2);
        assert_eq!(unexpected(&refuses, &parse("free 1")).len(), 1);
    }
}
