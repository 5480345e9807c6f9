//! arm64 guest: cross-compiles the executables, lists the files of the guest, and checks a trace in the guest.
//!
//! The files of this machine are for another architecture. So the guest has its own files in memory: memtrace and a
//! victim, which were cross-compiled, and the C library of Debian's arm64 packages. The BPF programs must load, and the
//! totals of the report must equal the victim's totals.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::{Machine, OBJECT};
use harness::{Report, Totals, VictimTotals};

use crate::apt::{self, Apt};
use crate::workspace::{Workspace, create_empty};
use crate::{bpf, command, ui};

/// Rust's target triple.
const TARGET: &str = "aarch64-unknown-linux-gnu";

const ARCHITECTURE: &str = "arm64";

const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Debian's compiler. It accepts the standard library of Debian's packages.
const DEBIANS_COMPILER: &str = "/usr/bin/rustc";

/// Debian's package of Rust's standard library.
const LIBRARY_PACKAGE: &str = "libstd-rust-web-dev";

/// Packages with the libraries that memtrace and the victim load.
const SYSTEM_PACKAGES: [&str; 2] = ["libc6", "libgcc-s1"];

/// Files of these packages that memtrace and the victim load.
const SYSTEM_FILES: [&str; 4] = [
    "lib/ld-linux-aarch64.so.1",
    "lib/aarch64-linux-gnu/libc.so.6",
    "lib/aarch64-linux-gnu/libm.so.6",
    "lib/aarch64-linux-gnu/libgcc_s.so.1",
];

/// Folder of the package xtask in the guest. The BPF objects are in the `target` folder of its workspace.
pub(super) const PACKAGE: &str = "/checkout/xtask";

/// Path of xtask in the guest.
pub(super) const XTASK: &str = "/bin/xtask";

/// Path of memtrace in the guest.
pub(super) const MEMTRACE: &str = "/bin/memtrace";

/// Command that traces a victim in the guest.
pub(super) const TRACE: [&str; 2] = ["sh", "/trace.sh"];

/// Downloads the libraries that the builds and the guest need.
pub(super) fn fetch(workspace: &Workspace) -> Result<()> {
    let folder = folder(workspace);
    let system = folder.join("system");
    if !SYSTEM_FILES.iter().all(|file| system.join(file).exists()) {
        unpack(&folder, &system, &SYSTEM_PACKAGES.map(str::to_owned))?;
    }
    if !has_target("rustc")? && !library(workspace).is_dir() {
        let shown = ["-W", "-f", "${Version}", LIBRARY_PACKAGE];
        let version = command::answer(Command::new("dpkg-query").args(shown)).with_context(|| {
            format!("the Rust compiler has no target {TARGET}. With rustup: rustup target add {TARGET}")
        })?;
        unpack(&folder, &folder.join("std"), &[format!("{LIBRARY_PACKAGE}={version}")])?;
    }
    Ok(())
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.join("target/kernels/arm64")
}

fn library(workspace: &Workspace) -> PathBuf {
    folder(workspace).join(format!("std/usr/lib/rustlib/{TARGET}/lib"))
}

fn unpack(folder: &Path, into: &Path, packages: &[String]) -> Result<()> {
    let apt = Apt::prepare(&folder.join("apt"), &apt::own_sources()?)?.for_architecture(ARCHITECTURE);
    create_empty(into)?;
    apt.update()?;
    packages.iter().try_for_each(|package| apt.unpack(package, into).map(drop))
}

/// Returns true if the compiler has the standard library for arm64.
fn has_target(compiler: &str) -> Result<bool> {
    let root = command::answer(Command::new(compiler).args(["--print", "sysroot"]))
        .with_context(|| format!("cannot run {compiler}"))?;
    Ok(Path::new(&root).join("lib/rustlib").join(TARGET).is_dir())
}

/// Builds the BPF objects and the executables that the guest runs.
pub(super) fn build(workspace: &Workspace) -> Result<()> {
    bpf::build_for(workspace, Machine::Aarch64)?;
    ui::step("Building memtrace for arm64");
    let target = folder(workspace).join("target");
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["build", "--package", "memtrace", "--package", "xtask"]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(&target);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    if !has_target("rustc")? {
        cargo.env("RUSTC", DEBIANS_COMPILER);
        let flags = format!("-L {} -C strip=debuginfo", library(workspace).display());
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", flags);
    }
    command::run(&mut cargo)?;
    let victims = workspace.join("tests/victims");
    let mut gcc = Command::new(LINKER);
    gcc.args(["-std=c11", "-O1", "-g", "-fno-builtin", "-pthread", "-o"]).arg(folder(workspace).join("exact"));
    command::run(gcc.arg(victims.join("exact.c")).arg(victims.join("ledger.c")))
}

/// Returns the files of the guest, each with the path in the guest and the path on this machine.
pub(super) fn files(workspace: &Workspace) -> Vec<(String, PathBuf)> {
    let folder = folder(workspace);
    // A debug build: for a single trace, optimisation would take longer than it saves.
    let built = folder.join("target").join(TARGET).join("debug");
    let system = SYSTEM_FILES.iter().map(|file| ((*file).to_owned(), folder.join("system").join(file)));
    let object = format!("checkout/target/bpf/{}/{OBJECT}", Machine::Aarch64.name());
    let own = [
        (object, workspace.bpf().object(Machine::Aarch64)),
        (MEMTRACE[1..].to_owned(), built.join("memtrace")),
        (XTASK[1..].to_owned(), built.join("xtask")),
        (String::from("victim/exact"), folder.join("exact")),
        (String::from("trace.sh"), workspace.join("xtask/src/kernels/trace.sh")),
        (PACKAGE[1..].to_owned() + "/Cargo.toml", workspace.join("xtask/Cargo.toml")),
    ];
    system.chain(own).collect()
}

/// Compares the report of a trace with the victim's totals. `output` is the output of [`TRACE`], which contains both.
pub(super) fn compare(output: &str) -> Result<()> {
    let find = |name: &str| {
        output.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("the output has no {name}"))
    };
    let expected: VictimTotals = serde_json::from_str(find("totals ")?).context("the victim's totals are not JSON")?;
    let report = Report::read(find("report ")?).context("memtrace's report cannot be read")?;
    check(&report, expected.totals)
}

fn check(report: &Report, expected: Totals) -> Result<()> {
    let [process] = &report.processes[..] else { bail!("the report does not have exactly one process") };
    let expected = if process.ended.is_some() { expected.at_exit() } else { expected };
    if process.totals != expected {
        bail!("the report has {:?}, expected {expected:?}", process.totals);
    }
    if report.total_losses() > 0 || expected.alloc_count == 0 {
        bail!("events were lost, or nothing was allocated: {:?}, {expected:?}", report.losses);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use harness::report::ProcessReport;

    use super::*;

    #[test]
    fn report_must_equal_the_totals_without_losses() {
        let totals = Totals::live(3, 2);
        let process = ProcessReport { totals, ..ProcessReport::default() };
        let mut report = Report { processes: vec![process], ..Report::default() };
        check(&report, totals).unwrap();
        let error = check(&report, Totals::live(4, 2)).unwrap_err().to_string();
        assert!(error.contains("alloc_bytes: 3") && error.contains("alloc_bytes: 4"), "{error}");
        report.content.losses = [("probe_missed".into(), 1)].into();
        assert!(check(&report, totals).unwrap_err().to_string().contains("probe_missed"));
        assert!(check(&Report::default(), totals).is_err());
        assert!(compare("totals {}").is_err());
    }

    #[test]
    fn totals_and_report_are_read_from_the_output() {
        let totals = serde_json::json!({
            "live_bytes": 3, "live_count": 2, "alloc_bytes": 3, "alloc_count": 2, "free_bytes": 0, "free_count": 0,
            "unmatched_frees": 0, "filtered_bytes": 0, "filtered_count": 0, "peak_bytes": 3, "sites": [],
        });
        let golden = include_str!("../../../crates/report/tests/golden/sample.json");
        let report: serde_json::Value = serde_json::from_str(golden).unwrap();
        let error = compare(&format!("attached\ntotals {totals}\nreport {report}\n")).unwrap_err().to_string();
        assert!(error.contains("does not have exactly one process"), "{error}");
    }
}
