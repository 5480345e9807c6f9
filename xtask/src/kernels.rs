//! Tests on other kernels, in guests under software emulation.
//!
//! A guest sees this machine's files, with a layer over them that takes what it writes; so what was built here runs there
//! as it is. A guest of another machine ([`arm64`]) has files of its own.

mod arm64;
mod boot;
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
pub(crate) use features::write as write_table;
pub(crate) use guest::emulator;
use selection::Share;
pub(crate) use supported::{Kernel, asked_for};
pub(crate) use verify::verify;

use crate::test::{Binary, Group, Tally};
use crate::workspace::Workspace;
use crate::{command, ui};

/// For guests like this machine optimised, since they are slow; in a folder of its own, since the tests look for another memtrace
/// beside them.
const PROFILE: &str = "release";

/// The kernel that is always tested on.
pub(crate) fn usual() -> Vec<&'static Kernel> {
    supported::ALL.iter().filter(|kernel| kernel.name == supported::USUAL).collect()
}

/// Makes the kernels ready; those that cannot be had are told when they are tested on.
pub(crate) fn fetch(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    for kernel in kernels {
        images::busybox(workspace, kernel)?;
        if let Err(error) = images::kernel(workspace, kernel) {
            ui::warning(&format!("{error:#}"));
        }
    }
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) { arm64::fetch(workspace) } else { Ok(()) }
}

/// Runs the tests for guests on each of the kernels, in as many guests at a time as there are processors.
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
    let memtrace = build_for(workspace, kernels)?;
    let shares: Vec<_> = kernels.iter().flat_map(|kernel| Share::all(kernel)).collect();
    let begun = Instant::now();
    let outcomes = parallel::each(&shares, |share| {
        let name = format!("part {} of the tests for guests on Linux {}", share.number, share.kernel.name);
        ui::step(&format!("Running {name}"));
        let begun = Instant::now();
        let outcome = match share.kernel.machine {
            Machine::X86_64 => guest_tests::run(workspace, share, &memtrace, binaries),
            Machine::Aarch64 => guest_tests::trace(workspace, share.kernel),
        };
        ui::note(&format!("{name} took {} s", begun.elapsed().as_secs()));
        outcome
    });
    ui::note(&format!("the tests for guests took {} s", begun.elapsed().as_secs()));
    for (kernel, outcome) in shares.iter().map(|share| share.kernel).zip(outcomes) {
        let problems = match outcome {
            Ok(outcome) => {
                for (name, ran) in outcome.rows {
                    tally.add_required(Group::Guests, &format!("Linux {} {name}", kernel.name), ran);
                }
                outcome.problems
            }
            Err(error) => vec![format!("{error:#}")],
        };
        problems.into_iter().for_each(|problem| tally.problem(format!("Linux {}: {problem}", kernel.name)));
    }
    Ok(())
}

/// Builds what guests run; returns the memtrace of those that are like this machine.
fn build_for(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<PathBuf> {
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        arm64::build(workspace)?;
    }
    ui::step("Building the memtrace that guests run");
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["build", "--package", "memtrace", "--profile", PROFILE]);
    command::run(&mut cargo)?;
    Ok(workspace.join("target").join(PROFILE).join("memtrace"))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} cannot be handed to a guest", path.display()))
}
