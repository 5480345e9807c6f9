//! `cargo xtask test`: installs the requirements, and runs all checks and tests. A test that cannot run is a failure.

mod binaries;
mod execute;
mod lanes;
mod results;
mod scope;
mod times;
mod topics;

use anyhow::{Result, bail};
use binaries::PRIVILEGED_PACKAGE;
pub(crate) use binaries::{Binary, privileged};
use execute::{PRIVILEGED_DEADLINE, Selection};
pub(crate) use execute::{REPORT_TIME, UNSTABLE};
pub(crate) use results::{BinaryResult, Group, Results};
use scope::Scope;
use times::Steps;
pub(crate) use times::TestLine;
pub(crate) use topics::list as list_tests;
use topics::{LONG_PATH, Topics};

use crate::kernels::{self, Kernel};
use crate::privilege::Root;
use crate::tier::Tier;
use crate::workspace::Workspace;
use crate::{bpf, command, fuzz, guide, lint, parallel, setup, soak, ui};

/// Name prefix of tests that run as root, in packages other than [`PRIVILEGED_PACKAGE`].
const PRIVILEGED_PREFIX: &str = "privileged_";

/// Number of test binaries that run at the same time without root.
const UNPRIVILEGED_BINARIES: usize = 2;

/// Environment variable with the path of the memtrace under test.
const MEMTRACE: &str = "MEMTRACE_BIN";

/// Runs the tests of a tier, or with `--kernels` only the guest tests.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    match Scope::parse(options)? {
        Scope::Kernels(kernels) => run_on(workspace, &kernels),
        Scope::Tier(tier) => run_tier(workspace, tier),
    }
}

fn run_on(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    let mut steps = Steps::begin();
    steps.time("requirements", || {
        setup::for_tests(workspace, Tier::Short)?;
        setup::for_guests(workspace, kernels)
    })?;
    steps.time("BPF objects", || bpf::run(workspace))?;
    let binaries = steps.time("build", || build(workspace))?;
    let mut results = Results::of_groups(&[Group::Guests]);
    steps.time("guests", || kernels::run_tests(workspace, kernels, Tier::Long, &binaries, &mut results))?;
    conclude(results, &steps)
}

/// Builds memtrace, the victims and the tests. Cargo builds the executables of a package together with its integration
/// tests.
fn build(workspace: &Workspace) -> Result<Vec<Binary>> {
    ui::step("Building the programs and the tests");
    binaries::build(workspace, &["--workspace"])
}

fn conclude(results: Results, steps: &Steps) -> Result<()> {
    let (summary, passed) = results.conclude(steps);
    ui::result(&format!("\n{summary}"));
    if passed { Ok(()) } else { bail!("a test failed or did not run") }
}

fn run_tier(workspace: &Workspace, tier: Tier) -> Result<()> {
    let mut steps = Steps::begin();
    // Obtain root first, so that sudo asks for a password before the build.
    let root = Root::obtain();
    if let Err(error) = &root {
        ui::warning(&format!("the privileged tests cannot run, so this command will fail: {error:#}"));
    }
    steps.time("requirements", || setup::for_tests(workspace, tier))?;
    let kernels = scope::kernels_of(tier);
    let guests = steps.time("requirements of the guests", || setup::for_guests(workspace, &kernels));
    if let Err(error) = &guests {
        ui::warning(&format!("the guest tests cannot run, so this command will fail: {error:#}"));
    }
    steps.time("BPF objects", || bpf::run(workspace))?;
    // The tidy rules are not checked here, because a test of xtask checks them.
    steps.time("formatting, lints, dependencies", || lint::check_code(workspace))?;
    let binaries = steps.time("build", || build(workspace))?;

    let mut results = Results::of_groups(Group::ALL);
    results.check(String::from("formatting, lints, dependencies"));
    run_unprivileged(workspace, tier, &binaries, &mut steps, &mut results)?;
    match root {
        Ok(root) => {
            run_privileged(workspace, root, tier, &binaries, &mut steps, &mut results)?;
            match steps.time("soak", || run_soak(workspace, root, tier, &binaries)) {
                Ok(()) => results.check(String::from("soak")),
                Err(error) => results.problem(format!("soak: {error:#}")),
            }
            if tier == Tier::Long {
                match steps.time("guide", || guide::check_in_tests(workspace, root)) {
                    Ok(problems) if problems.is_empty() => results.check(String::from("guide")),
                    Ok(problems) => problems.into_iter().for_each(|problem| results.problem(problem)),
                    Err(error) => results.problem(format!("guide: {error:#}")),
                }
            }
        }
        Err(error) => results.add_missing_group(Group::Privileged, &format!("{error:#}")),
    }
    let guests = steps.time("guests", || {
        guests.and_then(|()| kernels::run_tests(workspace, &kernels, tier, &binaries, &mut results))
    });
    if let Err(error) = guests {
        results.add_missing_group(Group::Guests, &format!("{error:#}"));
    }
    if tier == Tier::Long {
        // The tests of a guest load only some of the BPF programs, so the verifiers check all of them here.
        match steps.time("verifiers of the kernels", || kernels::verify(workspace, &kernels)) {
            Ok(()) => results.check(String::from("verifiers of the kernels")),
            Err(error) => results.problem(format!("verifiers of the kernels: {error:#}")),
        }
        match steps.time("fuzz targets", || fuzz::run_in_tests(workspace)) {
            Ok(failures) if failures.is_empty() => results.check(String::from("fuzz targets")),
            Ok(failures) => failures.into_iter().for_each(|failure| results.problem(failure)),
            Err(error) => results.problem(format!("fuzz targets: {error:#}")),
        }
    }
    conclude(results, &steps)
}

fn run_unprivileged(
    workspace: &Workspace,
    tier: Tier,
    binaries: &[Binary],
    steps: &mut Steps,
    results: &mut Results,
) -> Result<()> {
    let skipped: &[&str] = match tier {
        Tier::Short => &[PRIVILEGED_PREFIX, LONG_PATH],
        Tier::Long => &[PRIVILEGED_PREFIX],
    };
    ui::step("Running the unprivileged tests");
    steps.time("unprivileged tests", || {
        let binaries: Vec<&Binary> = binaries.iter().filter(|binary| binary.package != PRIVILEGED_PACKAGE).collect();
        // Several binaries run at a time: a binary that waits for its slowest test would leave a processor idle.
        let outcomes = parallel::map(UNPRIVILEGED_BINARIES, &binaries, |_, binary| {
            execute::run_beside_others(binary.command(), Selection::Without(skipped))
        });
        for (binary, outcome) in binaries.iter().zip(outcomes) {
            results.add(Group::Unprivileged, &binary.name(), outcome?);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let result = steps.time("documentation tests", || execute::doc_tests(workspace))?;
    results.add(Group::Unprivileged, "documentation tests", result);
    Ok(())
}

fn run_privileged(
    workspace: &Workspace,
    root: Root,
    tier: Tier,
    binaries: &[Binary],
    steps: &mut Steps,
    results: &mut Results,
) -> Result<()> {
    ui::step("Running the privileged tests");
    let binary = privileged(binaries)?;
    let others = binaries.iter().filter(|binary| binary.package != PRIVILEGED_PACKAGE);
    let topics = Topics::of(&binary.program)?;
    steps.time("privileged tests in lanes", || lanes::run(workspace, root, binary, &topics.lanes, results))?;
    steps.time("privileged tests that run alone", || {
        for binary in others {
            let command = binary.privileged_command(root, PRIVILEGED_DEADLINE, &[]);
            results.add(Group::Privileged, &binary.name(), execute::run(command, Selection::Only(PRIVILEGED_PREFIX))?);
        }
        lanes::run_alone(root, binary, &[], &topics.alone, results)
    })?;
    if tier == Tier::Long {
        // The time limits of these tests are for the optimised program that users have.
        let memtrace = steps.time("build with optimisations", || command::build_release(workspace))?;
        let wrapper = [String::from("env"), format!("{MEMTRACE}={}", memtrace.display())];
        steps.time("long privileged tests", || lanes::run_alone(root, binary, &wrapper, &topics.long, results))?;
    }
    Ok(())
}

fn run_soak(workspace: &Workspace, root: Root, tier: Tier, binaries: &[Binary]) -> Result<()> {
    soak::run_in_tests(workspace, root, tier, privileged(binaries)?.neighbour("memtrace")?)
}
