//! What other kernels' verifiers say of the programs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::{Machine, Variant};

use super::boot::boot;
use super::guest_tests::PART_SECONDS;
use super::supported::Kernel;
use super::transcript::{Script, Transcript};
use super::{arm64, parallel, text};
use crate::ui;
use crate::verifier::{self, Verdict, Verdicts};
use crate::workspace::Workspace;

/// When a guest is ended that asks its verifier.
const DEADLINE: Duration = Duration::from_secs(120);

/// The most instructions that a verifier may walk through: the kernel gives up at 1,000,000 (`BPF_COMPLEXITY_LIMIT_INSNS`,
/// include/linux/bpf.h), and the next compiler or kernel may need more.
const MOST_VERIFIED: u64 = 600_000;

/// Prints what the verifier of each kernel walks through, program by program.
///
/// # Errors
///
/// Where a kernel cannot be had, refuses a program, or walks through too much.
pub(crate) fn verify(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    let mut problems = Vec::new();
    let mut columns = Vec::new();
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        arm64::build(workspace)?;
    }
    let answers = parallel::each(kernels, |kernel| ask(workspace, kernel));
    for (kernel, answer) in kernels.iter().zip(answers) {
        match answer {
            Err(error) => problems.push(format!("Linux {}: {error:#}", kernel.name)),
            Ok((transcript, trouble)) => {
                problems.extend(trouble.map(|trouble| format!("Linux {}: {trouble}", kernel.name)));
                let part = transcript.part(PART).cloned().unwrap_or_default();
                if part.status != Some(0) {
                    problems.push(format!("Linux {} does not tell of the programs; its words are above", kernel.name));
                }
                columns.push((*kernel, verifier::read(&part.text())));
            }
        }
    }
    for (kernel, verdicts) in &columns {
        for (program, verdict) in verdicts {
            let shown = match verdict {
                Verdict::Accepted(Some(count)) => count.to_string(),
                Verdict::Accepted(None) => String::from(verifier::UNTOLD),
                Verdict::Refused(words) => format!("refused: {words}"),
            };
            ui::result(&format!("{:<9} {program:<32} {shown:>8}", kernel.name));
        }
        problems.extend(unexpected(kernel, verdicts));
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}

const PART: &str = "verifier";

fn ask(workspace: &Workspace, kernel: &Kernel) -> Result<(Transcript, Option<String>)> {
    ui::step(&format!("Asking the verifier of Linux {}", kernel.name));
    let mut script = Script::with(&[]);
    match kernel.machine {
        Machine::X86_64 => {
            let program = std::env::current_exe().context("this program does not know where it lies")?;
            let folder = workspace.join("xtask");
            script.part(PART, text(&folder)?, PART_SECONDS, &[text(&program)?, "bpf", "verified"]);
        }
        Machine::Aarch64 => script.part(PART, arm64::CHECKOUT, PART_SECONDS, &[arm64::ASKER, "bpf", "verified"]),
    }
    boot(workspace, kernel, kernel.name, script, DEADLINE)
}

/// What is wrong with a verifier's verdicts.
fn unexpected(kernel: &Kernel, verdicts: &Verdicts) -> Vec<String> {
    let name = kernel.name;
    let is_of = |program: &str, variant| program.starts_with(verifier::PLAIN) == (variant == Variant::Plain);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_must_take_or_refuse_the_programs_as_it_is_said_to() {
        let kernel = |refuses| Kernel { name: "1.0", machine: Machine::X86_64, suites: &[], refuses };
        let told = |text| verifier::read(text);
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
