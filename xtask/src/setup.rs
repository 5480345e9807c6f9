//! `cargo xtask setup`: finds or installs what the builds and the tests need.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{command, debian, libraries, say, toolchain};

/// A program that is needed, and Debian's package with it.
struct Program {
    name: &'static str,
    package: &'static str,
}

/// What the demo and the build itself need.
const BUILD: &[Program] = &[Program { name: "gcc", package: "gcc" }];

/// What the victims of the tests are built and looked at with.
const TESTS: &[Program] = &[
    Program { name: "gcc", package: "gcc" },
    Program { name: "g++", package: "g++" },
    Program { name: "musl-gcc", package: "musl-tools" },
    Program { name: "objcopy", package: "binutils" },
    Program { name: "python3", package: "python3" },
];

/// Everything: for the builds, the demo and the tests.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    for_tests(workspace)?;
    toolchain::obtain(workspace)?;
    say::result("everything needed is there");
    Ok(())
}

/// What the demo needs besides the BPF toolchain.
pub(crate) fn for_demo() -> Result<()> {
    ensure(BUILD, "building")
}

/// What the tests need besides the BPF toolchain.
pub(crate) fn for_tests(workspace: &Workspace) -> Result<()> {
    ensure(TESTS, "the tests")?;
    libraries::ensure(workspace)
}

fn ensure(programs: &[Program], why: &str) -> Result<()> {
    let mut packages: Vec<&str> = Vec::new();
    for program in programs {
        if command::in_path(program.name).is_empty() && !packages.contains(&program.package) {
            packages.push(program.package);
        }
    }
    if packages.is_empty() { Ok(()) } else { debian::install(&packages, why) }
}
