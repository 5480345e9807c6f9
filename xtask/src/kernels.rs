//! Tests on other kernels, in guests under software emulation.
//!
//! A guest has this machine's files below an overlay, which takes the guest's writes. So a guest runs the test binaries that
//! were built on this machine. A guest of another architecture ([`arm64`]) has its own files.

mod arm64;
mod boot;
mod built;
mod bzimage;
mod cpio;
mod features;
mod guest;
mod guest_tests;
mod images;
mod selection;
mod supported;
mod transcript;
mod verify;

use std::time::Instant;

use anyhow::Result;
use bpf_artifact::Machine;
pub(crate) use built::REQUIREMENTS as REQUIREMENTS_OF_BUILDS;
pub(crate) use features::write as write_table;
pub(crate) use guest::emulator;
use selection::Share;
pub(crate) use supported::{Kernel, from_options};
pub(crate) use verify::{build_bpf, verify};

use crate::test::{Binary, Group, Results};
use crate::tier::Tier;
use crate::workspace::Workspace;
use crate::{parallel, ui};

/// Returns the kernel that `cargo xtask test` uses in both tiers.
pub(crate) fn default_kernels() -> Vec<&'static Kernel> {
    supported::ALL.iter().filter(|kernel| kernel.name == supported::DEFAULT).collect()
}

/// Returns all kernels.
pub(crate) fn all() -> Vec<&'static Kernel> {
    supported::ALL.iter().collect()
}

/// Downloads or builds the kernels. A failure is only a warning here. It becomes an error when the kernel is booted.
pub(crate) fn fetch(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    for kernel in kernels {
        images::busybox(workspace, kernel)?;
        if let Err(error) = images::kernel(workspace, kernel) {
            ui::warning(&format!("{error:#}"));
        }
    }
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) { arm64::fetch(workspace) } else { Ok(()) }
}

/// Runs the guest tests of a tier on each of the kernels, with one guest per processor at a time.
///
/// # Errors
///
/// The executables for arm64 cannot be built. Problems of a single kernel are not errors, but added to `results`.
pub(crate) fn run_tests(
    workspace: &Workspace,
    kernels: &[&'static Kernel],
    tier: Tier,
    binaries: &[Binary],
    results: &mut Results,
) -> Result<()> {
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        arm64::build(workspace)?;
    }
    let shares: Vec<_> = kernels.iter().flat_map(|kernel| Share::all(kernel, tier)).collect();
    let start = Instant::now();
    let outcomes = parallel::map(parallel::processors(), &shares, |_, share| {
        let name = format!("part {} of the guest tests on Linux {}", share.number, share.kernel.name);
        ui::step(&format!("Running {name}"));
        let start = Instant::now();
        let outcome = match share.kernel.machine {
            Machine::X86_64 => guest_tests::run(workspace, share, binaries),
            Machine::Aarch64 => guest_tests::trace(workspace, share.kernel),
        };
        ui::note(&format!("{name} took {} s", start.elapsed().as_secs()));
        outcome
    });
    ui::note(&format!("the guest tests took {} s", start.elapsed().as_secs()));
    for (kernel, outcome) in shares.iter().map(|share| share.kernel).zip(outcomes) {
        let problems = match outcome {
            Ok(outcome) => {
                for (name, result) in outcome.rows {
                    results.add_required(Group::Guests, &format!("Linux {} {name}", kernel.name), result);
                }
                outcome.problems
            }
            Err(error) => vec![format!("{error:#}")],
        };
        problems.into_iter().for_each(|problem| results.problem(format!("Linux {}: {problem}", kernel.name)));
    }
    Ok(())
}
