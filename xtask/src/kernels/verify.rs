//! `cargo xtask bpf`: builds the BPF objects, and runs the verifiers of other kernels on them.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::Machine;

use super::arm64;
use super::boot::boot;
use super::guest_tests::PART_SECONDS;
use super::supported::{Kernel, from_options};
use super::transcript::{Script, Transcript, text};
use crate::verifier::{self, Verdict, Verdicts};
use crate::workspace::Workspace;
use crate::{bpf, parallel, setup, ui};

/// Time limit of a guest.
const DEADLINE: Duration = Duration::from_secs(120);

/// Maximum number of instructions that a verifier may process for a BPF program. The kernel's limit is 1,000,000
/// (`BPF_COMPLEXITY_LIMIT_INSNS`, include/linux/bpf.h). The difference is a margin for other compilers and kernels.
const MAX_VERIFIED: u64 = 600_000;

/// Builds the BPF objects. With `--kernels`, runs the verifiers of these kernels on them. With `--machine`, builds them
/// for another architecture.
pub(crate) fn build_bpf(workspace: &Workspace, options: &[String]) -> Result<()> {
    if let [option, name] = options
        && option == "--machine"
    {
        let machine = Machine::from_name(name).with_context(|| format!("there are no objects for {name}"))?;
        return bpf::build_for(workspace, machine);
    }
    let kernels = from_options(options)?;
    bpf::run(workspace)?;
    match kernels {
        Some(kernels) => {
            setup::for_guests(workspace, &kernels)?;
            verify(workspace, &kernels)
        }
        None => Ok(()),
    }
}

/// Prints the verdict of each supported kernel of `kernels` on each BPF program.
///
/// # Errors
///
/// A kernel cannot boot, or a verifier refuses a program or processes too many instructions for it.
pub(crate) fn verify(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    let mut problems = Vec::new();
    let mut columns = Vec::new();
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        arm64::build(workspace)?;
    }
    let kernels: Vec<_> = kernels.iter().filter(|kernel| kernel.is_supported).collect();
    if kernels.is_empty() {
        bail!("none of these kernels is supported");
    }
    let answers = parallel::map(parallel::processors(), &kernels, |_, kernel| verify_on(workspace, kernel));
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
                Verdict::Accepted(count) => count.to_string(),
                Verdict::Refused(log) => format!("refused: {log}"),
                Verdict::NotPermitted => String::from("-"),
            };
            ui::result(&format!("{:<9} {program:<32} {shown:>8}", kernel.name));
        }
        problems.extend(problems_of(kernel.name, verdicts));
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

/// Returns a message about each BPF program that a kernel refuses, or that has more than [`MAX_VERIFIED`] verified
/// instructions.
fn problems_of(name: &str, verdicts: &Verdicts) -> Vec<String> {
    let problem = |(program, verdict): (&String, &Verdict)| match verdict {
        Verdict::Refused(log) => Some(format!("Linux {name} refuses {program}: {log}")),
        Verdict::Accepted(count) => (*count > MAX_VERIFIED)
            .then(|| format!("Linux {name}: {program} has more than {MAX_VERIFIED} verified instructions")),
        Verdict::NotPermitted => None,
    };
    verdicts.iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_and_complex_programs_are_reported() {
        let problems = |text| problems_of("1.0", &verifier::parse_verdicts(text));
        assert_eq!(problems("free 1\nmalloc 600000"), [""; 0]);
        assert_eq!(problems("free 600001").len(), 1);
        assert_eq!(problems("free refused: no atomics\nmalloc 1").len(), 1);
    }
}
