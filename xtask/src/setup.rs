//! `cargo xtask setup`: finds or installs what the builds and the tests need.

use std::path::Path;

use anyhow::Result;
use bpf_artifact::Machine;

use crate::kernels::{self, Kernel};
use crate::workspace::Workspace;
use crate::{command, debian, libraries, toolchain, ui};

/// A program that is needed, or another file, and Debian's package with it.
pub(crate) struct Program {
    /// Its name, or its path where another of that name will not do.
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
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
    Program { name: "redis-benchmark", package: "redis-tools" },
    Program { name: "ps", package: "procps" },
    Program { name: "setpriv", package: "util-linux" },
    // Programs that nobody here wrote, whose memory is explained.
    Program { name: "/usr/bin/redis-server", package: "redis-server" },
    Program { name: "/usr/bin/node", package: "nodejs" },
    Program { name: "/usr/bin/pg_createcluster", package: "postgresql" },
    Program { name: "/usr/include/jemalloc/jemalloc.h", package: "libjemalloc-dev" },
    Program { name: "/usr/include/gperftools/tcmalloc.h", package: "libgoogle-perftools-dev" },
    Program { name: "/usr/include/mimalloc.h", package: "libmimalloc-dev" },
];

/// What kernels are unpacked and booted with.
const GUESTS: &[Program] = &[
    Program { name: "depmod", package: "kmod" },
    Program { name: "xz", package: "xz-utils" },
    Program { name: "zstd", package: "zstd" },
];

/// What is built with for arm64.
const CROSS: &[Program] = &[
    Program { name: "aarch64-linux-gnu-gcc", package: "gcc-aarch64-linux-gnu" },
    Program { name: "/usr/aarch64-linux-gnu/include/stdio.h", package: "libc6-dev-arm64-cross" },
];

/// The programs that are measured, as Debian has them, and what measures them.
const REAL_PROGRAMS: &[Program] = &[
    Program { name: "gcc", package: "gcc" },
    Program { name: "g++", package: "g++" },
    Program { name: "/usr/bin/python3", package: "python3" },
    Program { name: "/usr/bin/sqlite3", package: "sqlite3" },
];

/// Everything: for the builds, the demo and the tests.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    for_tests(workspace)?;
    for_guests(workspace, &kernels::usual())?;
    toolchain::obtain(workspace)?;
    ui::result("everything needed is there");
    Ok(())
}

/// What the demo needs besides the BPF toolchain.
pub(crate) fn for_demo() -> Result<()> {
    for_building()
}

/// What is built with, besides the BPF toolchain.
pub(crate) fn for_building() -> Result<()> {
    ensure(BUILD, "building")
}

/// The programs that `cargo xtask bench real` measures.
pub(crate) fn for_real_programs() -> Result<()> {
    ensure(REAL_PROGRAMS, "the benchmarks of real programs")
}

/// What the tests need besides the BPF toolchain.
pub(crate) fn for_tests(workspace: &Workspace) -> Result<()> {
    ensure(TESTS, "the tests")?;
    libraries::ensure(workspace)
}

/// What the tests on other kernels need: an emulator, and those kernels.
pub(crate) fn for_guests(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    const WHY: &str = "the tests on other kernels";
    ensure(GUESTS, WHY)?;
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        ensure(CROSS, WHY)?;
    }
    for kernel in kernels {
        let Program { name, package } = kernels::emulator(kernel.machine);
        if !is_there(name) {
            debian::install_emulator(workspace, package)?;
        }
    }
    kernels::fetch(workspace, kernels)
}

/// By its path where it is one, else anywhere in `PATH`.
fn is_there(name: &str) -> bool {
    if name.starts_with('/') { Path::new(name).is_file() } else { !command::in_path(name).is_empty() }
}

fn ensure(programs: &[Program], why: &str) -> Result<()> {
    let mut packages: Vec<&str> = Vec::new();
    for program in programs {
        if !is_there(program.name) && !packages.contains(&program.package) {
            packages.push(program.package);
        }
    }
    if packages.is_empty() { Ok(()) } else { debian::install(&packages, why) }
}
