//! `cargo xtask setup`: finds or installs the dependencies of builds and tests.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::Machine;

use crate::apt::{self, Apt};
use crate::kernels::{self, Kernel};
use crate::requirement::Requirement;
use crate::tier::Tier;
use crate::workspace::{Workspace, create_empty};
use crate::{command, debian, go_releases, libraries, toolchain, ui, viewers};

/// Requirements of the demo and of builds.
const BUILD: &[Requirement] = &[Requirement { name: "gcc", package: "gcc" }];

/// Requirements of the tests of the short tier.
const TESTS: &[Requirement] = &[
    Requirement { name: "gcc", package: "gcc" },
    Requirement { name: "g++", package: "g++" },
    Requirement { name: "musl-gcc", package: "musl-tools" },
    Requirement { name: "objcopy", package: "binutils" },
    Requirement { name: "python3", package: "python3" },
    Requirement { name: "redis-benchmark", package: "redis-tools" },
    Requirement { name: "ps", package: "procps" },
    Requirement { name: "setpriv", package: "util-linux" },
    // Third-party programs for the tests of `memtrace explain`.
    Requirement { name: "/usr/bin/redis-server", package: "redis-server" },
    Requirement { name: "/usr/bin/node", package: "nodejs" },
    Requirement { name: "/usr/bin/pg_createcluster", package: "postgresql" },
    // pip installs the protobuf messages of Perfetto.
    Requirement { name: "pip", package: "python3-pip" },
    Requirement { name: "/usr/include/jemalloc/jemalloc.h", package: "libjemalloc-dev" },
    Requirement { name: "/usr/include/gperftools/tcmalloc.h", package: "libgoogle-perftools-dev" },
    Requirement { name: "/usr/include/mimalloc.h", package: "libmimalloc-dev" },
    Requirement { name: "go", package: "golang-go" },
];

/// Viewers of report formats, for the tests of the long tier.
const VIEWERS: &[Requirement] = &[
    Requirement { name: "chromium-headless-shell", package: "chromium-headless-shell" },
    Requirement { name: "heaptrack_print", package: "heaptrack" },
    Requirement { name: "npm", package: "npm" },
];

/// Debian packages of services in Go, for the tests of the long tier. They are unpacked only: the installation of a package starts
/// its service.
const SERVICES: &[&str] = &["caddy", "prometheus"];

/// Folder with one folder for each package of [`SERVICES`].
const SERVICES_FOLDER: &str = "target/services";

/// Programs that unpack kernels.
const GUESTS: &[Requirement] = &[
    Requirement { name: "depmod", package: "kmod" },
    Requirement { name: "xz", package: "xz-utils" },
    Requirement { name: "zstd", package: "zstd" },
];

/// Requirements of builds for arm64.
const CROSS: &[Requirement] = &[
    Requirement { name: "aarch64-linux-gnu-gcc", package: "gcc-aarch64-linux-gnu" },
    Requirement { name: "/usr/aarch64-linux-gnu/include/stdio.h", package: "libc6-dev-arm64-cross" },
];

/// Compilers of the benchmarks.
const BENCHMARKS: &[Requirement] =
    &[Requirement { name: "gcc", package: "gcc" }, Requirement { name: "go", package: "golang-go" }];

/// Programs that `cargo xtask bench real` measures.
const REAL_PROGRAMS: &[Requirement] = &[
    Requirement { name: "gcc", package: "gcc" },
    Requirement { name: "g++", package: "g++" },
    Requirement { name: "/usr/bin/python3", package: "python3" },
    Requirement { name: "/usr/bin/sqlite3", package: "sqlite3" },
];

/// Programs that `cargo xtask bench sampled` measures, and tracers for comparison.
const SAMPLED_PROGRAMS: &[Requirement] = &[
    Requirement { name: "/usr/bin/redis-server", package: "redis-server" },
    Requirement { name: "/usr/bin/memcached", package: "memcached" },
    Requirement { name: "/usr/bin/ruby", package: "ruby" },
    Requirement { name: "/usr/bin/perl", package: "perl" },
    Requirement { name: "/usr/bin/jq", package: "jq" },
    Requirement { name: "/usr/bin/lua5.4", package: "lua5.4" },
    Requirement { name: "/usr/bin/node", package: "nodejs" },
    Requirement { name: "/usr/include/jemalloc/jemalloc.h", package: "libjemalloc-dev" },
    Requirement { name: "heaptrack_print", package: "heaptrack" },
];

/// Programs that `cargo xtask soak` needs and traces.
const SOAK: &[Requirement] = &[
    Requirement { name: "gcc", package: "gcc" },
    Requirement { name: "g++", package: "g++" },
    Requirement { name: "python3", package: "python3" },
    Requirement { name: "taskset", package: "util-linux" },
];

/// Programs that `cargo xtask guide` runs, besides the programs of the tests and the viewers.
const GUIDE: &[Requirement] = &[
    Requirement { name: "/usr/bin/sqlite3", package: "sqlite3" },
    Requirement { name: "jq", package: "jq" },
    Requirement { name: "/usr/sbin/nginx", package: "nginx-light" },
    Requirement { name: "ab", package: "apache2-utils" },
];

/// Installs the requirements of builds, the demo and the tests; with `--long`, of the long tier too.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let tier = match options {
        [] => Tier::Short,
        [option] if option == "--long" => Tier::Long,
        [option, ..] => bail!("unknown option {option:?}; there is --long"),
    };
    for_tests(workspace, tier)?;
    for_guests(workspace, &kernels::default_kernels())?;
    toolchain::obtain(workspace)?;
    ui::result("all requirements are installed");
    Ok(())
}

/// Installs the requirements of the demo, except the BPF toolchain.
pub(crate) fn for_demo() -> Result<()> {
    for_building()
}

/// Installs the requirements of builds, except the BPF toolchain.
pub(crate) fn for_building() -> Result<()> {
    ensure(BUILD, "building")
}

/// Installs the compilers of the benchmarks.
pub(crate) fn for_benchmarks() -> Result<()> {
    ensure(BENCHMARKS, "the benchmarks")
}

/// Installs the programs that `cargo xtask bench real` measures, and the compilers of the benchmarks.
pub(crate) fn for_real_programs() -> Result<()> {
    for_benchmarks()?;
    ensure(REAL_PROGRAMS, "the benchmarks of real programs")
}

/// Installs the programs that `cargo xtask bench sampled` measures, and the compilers of the benchmarks.
pub(crate) fn for_sampled_programs() -> Result<()> {
    for_real_programs()?;
    ensure(SAMPLED_PROGRAMS, "the benchmarks of sampled traces")
}

/// Installs the programs that `cargo xtask soak` needs.
pub(crate) fn for_soak() -> Result<()> {
    ensure(SOAK, "the soak test")
}

/// Installs the requirements of the tests of a tier, except the BPF toolchain.
pub(crate) fn for_tests(workspace: &Workspace, tier: Tier) -> Result<()> {
    match tier {
        Tier::Short => ensure(TESTS, "the tests")?,
        Tier::Long => ensure(&[TESTS, VIEWERS, GUIDE].concat(), "the tests of the long tier")?,
    }
    libraries::ensure(workspace)?;
    go_releases::ensure(workspace, tier)?;
    if tier == Tier::Long {
        unpack_services(workspace)?;
    }
    viewers::ensure(workspace, tier)
}

/// Downloads and unpacks missing packages of [`SERVICES`].
fn unpack_services(workspace: &Workspace) -> Result<()> {
    let all = workspace.join(SERVICES_FOLDER);
    // The file has the version of the package. It is written last, so it marks a complete folder.
    let complete = |package: &str| all.join(package).join("VERSION");
    let missing: Vec<_> = SERVICES.iter().filter(|package| !complete(package).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    ui::step("Downloading services for the tests");
    let lists = all.join("apt");
    let apt = Apt::prepare(&lists, &apt::own_sources()?)?;
    apt.update()?;
    for package in missing {
        let folder = all.join(package);
        create_empty(&folder)?;
        let version =
            apt.unpack(package, &folder).with_context(|| format!("cannot download {package}, which the tests need"))?;
        fs::write(complete(package), version + "\n").context("cannot write the version of a service")?;
    }
    fs::remove_dir_all(lists).context("cannot remove apt's temporary folder")
}

/// Installs the emulators and downloads or builds the kernels for guest tests.
pub(crate) fn for_guests(workspace: &Workspace, kernels: &[&'static Kernel]) -> Result<()> {
    const WHY: &str = "the guest tests";
    ensure(GUESTS, WHY)?;
    if kernels.iter().any(|kernel| kernel.machine == Machine::Aarch64) {
        ensure(CROSS, WHY)?;
    }
    if kernels.iter().any(|kernel| kernel.config.is_some()) {
        ensure(kernels::REQUIREMENTS_OF_BUILDS, WHY)?;
    }
    for kernel in kernels {
        let Requirement { name, package } = kernels::emulator(kernel.machine);
        if !exists(name) {
            debian::install_emulator(workspace, package)?;
        }
    }
    kernels::fetch(workspace, kernels)
}

/// Returns true if `name` is an absolute path of a file, or the name of a program in `PATH`.
fn exists(name: &str) -> bool {
    if name.starts_with('/') { Path::new(name).is_file() } else { !command::in_path(name).is_empty() }
}

fn ensure(requirements: &[Requirement], why: &str) -> Result<()> {
    let mut packages: Vec<&str> = Vec::new();
    for requirement in requirements {
        if !exists(requirement.name) && !packages.contains(&requirement.package) {
            packages.push(requirement.package);
        }
    }
    if packages.is_empty() { Ok(()) } else { debian::install(&packages, why) }
}
