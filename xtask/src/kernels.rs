//! Tests on other kernels, in guests under software emulation.
//!
//! A guest has this machine's files through an overlay that takes its writes, so it runs the test binaries built here. A
//! guest of another architecture ([`arm64`]) has its own files.

mod arm64;
mod boot;
mod built;
mod bzimage;
mod cpio;
mod features;
mod guest;
mod guest_tests;
mod images;
mod parallel;
mod selection;
mod supported;
mod transcript;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use bpf_artifact::Machine;
pub(crate) use built::REQUIREMENTS as REQUIREMENTS_OF_BUILDS;
pub(crate) use features::write as write_table;
pub(crate) use guest::emulator;
use selection::Share;
pub(crate) use supported::{Kernel, from_options};
pub(crate) use verify::verify;

use crate::test::{Binary, Group, Results};
use crate::workspace::Workspace;
use crate::{command, ui};

/// Optimised because emulation is slow. The tests on this machine run the memtrace of the profile that they are built in.
const PROFILE: &str = "release";

/// Returns the kernel that `cargo xtask test` always runs on.
pub(crate) fn default_kernels() -> Vec<&'static Kernel> {
    supported::ALL.iter().filter(|kernel| kernel.name == supported::DEFAULT).collect()
}

/// Downloads the kernels. A failure is only a warning here; it is an error when the kernel is booted.
pub(crate) fn fetch(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    for kernel in kernels {
        images::busybox(workspace, kernel)?;
        if let Err(error) = images::kernel(workspace, kernel) {
            ui::warning(&format!("{error:#}"));
        }
    }
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) { arm64::fetch(workspace) } else { Ok(()) }
}

/// Runs the guest tests on each of the kernels, with one guest per processor at a time.
///
/// # Errors
///
/// If no guest can run. Problems of a kernel are added to `results`.
pub(crate) fn run_tests(
    workspace: &Workspace,
    kernels: &[&'static Kernel],
    binaries: &[Binary],
    results: &mut Results,
) -> Result<()> {
    let memtrace = build_for(workspace, kernels)?;
    let shares: Vec<_> = kernels.iter().flat_map(|kernel| Share::all(kernel)).collect();
    let start = Instant::now();
    let outcomes = parallel::map(&shares, |share| {
        let name = format!("part {} of the guest tests on Linux {}", share.number, share.kernel.name);
        ui::step(&format!("Running {name}"));
        let start = Instant::now();
        let outcome = match share.kernel.machine {
            Machine::X86_64 => guest_tests::run(workspace, share, &memtrace, binaries),
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

/// Builds the programs for the guests; returns the memtrace for x86_64.
fn build_for(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<PathBuf> {
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        arm64::build(workspace)?;
    }
    ui::step("Building memtrace for the guests");
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["build", "--package", "memtrace", "--profile", PROFILE]);
    command::run(&mut cargo)?;
    Ok(workspace.join("target").join(PROFILE).join("memtrace"))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
