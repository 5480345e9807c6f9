//! `cargo xtask test`: sets up, and runs every check and every test; a test that could not run is a failure.

mod binaries;
mod execute;
mod results;

use std::time::Duration;

use anyhow::{Result, bail};
pub(crate) use binaries::Binary;
use execute::Selection;
pub(crate) use results::{Group, Ran, Tally};

use crate::kernels::{self, Kernel};
use crate::privilege::Root;
use crate::workspace::Workspace;
use crate::{bpf, command, lint, setup, ui};

/// All tests of this package need root.
pub(crate) const PRIVILEGED_PACKAGE: &str = "memtrace-tests";

/// Tests of the other packages that need root begin with this.
const PRIVILEGED_PREFIX: &str = "privileged_";

/// When a privileged test program is ended: a target that never comes to its barrier must not hold everything up.
const DEADLINE: Duration = Duration::from_secs(20 * 60);

/// Runs everything; with `--kernels` only what runs on other kernels.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    match kernels::asked_for(options)? {
        Some(kernels) => run_on(workspace, &kernels),
        None => run_all(workspace),
    }
}

fn run_on(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    setup::for_tests(workspace)?;
    setup::for_guests(workspace, kernels)?;
    bpf::run(workspace)?;
    ui::step("Building the tests");
    // Guests run no tests of another package, and a memtrace of their own.
    let binaries = binaries::build(workspace, &["--package", PRIVILEGED_PACKAGE, "--tests"])?;
    let mut tally = Tally::of_groups(&[Group::Guests]);
    kernels::run_tests(workspace, kernels, &binaries, &mut tally)?;
    conclude(tally)
}

fn build(workspace: &Workspace) -> Result<Vec<Binary>> {
    ui::step("Building the programs and the tests");
    // The privileged tests run memtrace itself, which belongs to another package than they.
    command::run(command::cargo().current_dir(workspace.root()).args(["build", "--workspace"]))?;
    binaries::build(workspace, &["--workspace"])
}

fn conclude(tally: Tally) -> Result<()> {
    let (summary, well) = tally.conclude();
    ui::result(&format!("\n{summary}"));
    if well { Ok(()) } else { bail!("not everything ran and passed") }
}

fn run_all(workspace: &Workspace) -> Result<()> {
    // Asked first, so that a password is wanted at the beginning and not after many minutes of building.
    let root = Root::obtain();
    if let Err(error) = &root {
        ui::warning(&format!("the privileged tests will not run, and so this will fail: {error:#}"));
    }
    setup::for_tests(workspace)?;
    let usual = kernels::usual();
    let guests = setup::for_guests(workspace, &usual);
    if let Err(error) = &guests {
        ui::warning(&format!("the tests on other kernels will not run, and so this will fail: {error:#}"));
    }
    bpf::run(workspace)?;
    lint::check(workspace)?;
    let binaries = build(workspace)?;

    let mut tally = Tally::of_groups(Group::ALL);
    ui::step("Running the tests that need no privileges");
    for binary in binaries.iter().filter(|binary| binary.package != PRIVILEGED_PACKAGE) {
        let ran = execute::run(binary.command(), Selection::Without(PRIVILEGED_PREFIX))?;
        tally.add(Group::Unprivileged, &binary.name(), ran);
    }
    tally.add(Group::Unprivileged, "examples in the documentation", execute::doc_tests(workspace)?);

    match root {
        Ok(root) => run_privileged(root, &binaries, &mut tally)?,
        Err(error) => tally.could_not_run(Group::Privileged, &format!("{error:#}")),
    }
    match guests.and_then(|()| kernels::run_tests(workspace, &usual, &binaries, &mut tally)) {
        Ok(()) => {}
        Err(error) => tally.could_not_run(Group::Guests, &format!("{error:#}")),
    }
    conclude(tally)
}

fn run_privileged(root: Root, binaries: &[Binary], tally: &mut Tally) -> Result<()> {
    ui::step("Running the privileged tests");
    for binary in binaries {
        let all = binary.package == PRIVILEGED_PACKAGE;
        let selection = if all { Selection::All } else { Selection::Only(PRIVILEGED_PREFIX) };
        let ran = execute::run(binary.privileged_command(root, DEADLINE), selection)?;
        if all && binary.is_test_file {
            tally.add_required(Group::Privileged, &binary.name(), ran);
        } else {
            tally.add(Group::Privileged, &binary.name(), ran);
        }
    }
    Ok(())
}
