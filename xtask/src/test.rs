//! `cargo xtask test`: sets up and runs all checks and tests. A test that could not run is a failure.

mod binaries;
mod execute;
mod results;

use std::time::Duration;

use anyhow::{Result, bail};
pub(crate) use binaries::Binary;
use execute::Selection;
pub(crate) use results::{BinaryResult, Group, Results};

use crate::kernels::{self, Kernel};
use crate::privilege::Root;
use crate::workspace::Workspace;
use crate::{bpf, command, lint, setup, soak, ui};

/// All tests of this package run as root.
pub(crate) const PRIVILEGED_PACKAGE: &str = "memtrace-tests";

/// Name prefix of tests in other packages that run as root.
const PRIVILEGED_PREFIX: &str = "privileged_";

/// Time limit of a privileged test binary, in case that a target hangs.
const DEADLINE: Duration = Duration::from_secs(20 * 60);

/// Runs everything, or with `--kernels` only the guest tests.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    match kernels::from_options(options)? {
        Some(kernels) => run_on(workspace, &kernels),
        None => run_all(workspace),
    }
}

fn run_on(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    setup::for_tests(workspace)?;
    setup::for_guests(workspace, kernels)?;
    bpf::run(workspace)?;
    ui::step("Building the tests");
    // Guests run only tests of this package, with an optimised memtrace.
    let binaries = binaries::build(workspace, &["--package", PRIVILEGED_PACKAGE, "--tests"])?;
    let mut results = Results::of_groups(&[Group::Guests]);
    kernels::run_tests(workspace, kernels, &binaries, &mut results)?;
    conclude(results)
}

fn build(workspace: &Workspace) -> Result<Vec<Binary>> {
    ui::step("Building the programs and the tests");
    // The privileged tests run the memtrace executable, which belongs to another package.
    command::run(command::cargo().current_dir(workspace.root()).args(["build", "--workspace"]))?;
    binaries::build(workspace, &["--workspace"])
}

fn conclude(results: Results) -> Result<()> {
    let (summary, passed) = results.conclude();
    ui::result(&format!("\n{summary}"));
    if passed { Ok(()) } else { bail!("a test failed or did not run") }
}

fn run_all(workspace: &Workspace) -> Result<()> {
    // First, so that sudo asks for a password before the build.
    let root = Root::obtain();
    if let Err(error) = &root {
        ui::warning(&format!("the privileged tests cannot run, so this command will fail: {error:#}"));
    }
    setup::for_tests(workspace)?;
    let kernels = kernels::default_kernels();
    let guests = setup::for_guests(workspace, &kernels);
    if let Err(error) = &guests {
        ui::warning(&format!("the guest tests cannot run, so this command will fail: {error:#}"));
    }
    bpf::run(workspace)?;
    lint::check(workspace)?;
    let binaries = build(workspace)?;

    let mut results = Results::of_groups(Group::ALL);
    ui::step("Running the unprivileged tests");
    for binary in binaries.iter().filter(|binary| binary.package != PRIVILEGED_PACKAGE) {
        let result = execute::run(binary.command(), Selection::Without(PRIVILEGED_PREFIX))?;
        results.add(Group::Unprivileged, &binary.name(), result);
    }
    results.add(Group::Unprivileged, "documentation tests", execute::doc_tests(workspace)?);

    match root {
        Ok(root) => {
            run_privileged(root, &binaries, &mut results)?;
            if let Err(error) = soak::run_in_tests(workspace, root) {
                results.problem(format!("soak: {error:#}"));
            }
        }
        Err(error) => results.add_missing_group(Group::Privileged, &format!("{error:#}")),
    }
    match guests.and_then(|()| kernels::run_tests(workspace, &kernels, &binaries, &mut results)) {
        Ok(()) => {}
        Err(error) => results.add_missing_group(Group::Guests, &format!("{error:#}")),
    }
    conclude(results)
}

fn run_privileged(root: Root, binaries: &[Binary], results: &mut Results) -> Result<()> {
    ui::step("Running the privileged tests");
    for binary in binaries {
        let all = binary.package == PRIVILEGED_PACKAGE;
        let selection = if all { Selection::All } else { Selection::Only(PRIVILEGED_PREFIX) };
        let result = execute::run(binary.privileged_command(root, DEADLINE), selection)?;
        if all && binary.is_test_file {
            results.add_required(Group::Privileged, &binary.name(), result);
        } else {
            results.add(Group::Privileged, &binary.name(), result);
        }
    }
    Ok(())
}
