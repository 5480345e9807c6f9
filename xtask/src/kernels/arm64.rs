//! The arm64 guest: what is built for it, the files that it has, and what must come of a trace there.
//!
//! This machine's files are for another processor, so the guest has files of its own, in memory: memtrace and a victim,
//! built here, and the C library of Debian's arm64 packages. What is asked of it is that the programs load, and that what
//! they count is what the victim's books say.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::{Machine, Variant};
use serde_json::Value;

use super::images;
use crate::apt::{self, Apt};
use crate::workspace::Workspace;
use crate::{bpf, command, ui};

/// Rust's name of the machine, with its system.
const TARGET: &str = "aarch64-unknown-linux-gnu";

const ARCHITECTURE: &str = "arm64";

const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Debian's compiler, which reads its own standard library for other machines.
const DEBIANS_COMPILER: &str = "/usr/bin/rustc";

/// Its standard library.
const LIBRARY_PACKAGE: &str = "libstd-rust-web-dev";

/// What runs there besides what is built here.
const SYSTEM_PACKAGES: [&str; 2] = ["libc6", "libgcc-s1"];

/// What programs there load.
const SYSTEM_FILES: [&str; 4] = [
    "lib/ld-linux-aarch64.so.1",
    "lib/aarch64-linux-gnu/libc.so.6",
    "lib/aarch64-linux-gnu/libm.so.6",
    "lib/aarch64-linux-gnu/libgcc_s.so.1",
];

/// Where the guest has what asks its verifier, and the objects.
pub(super) const CHECKOUT: &str = "/checkout/xtask";

/// As [`CHECKOUT`].
pub(super) const ASKER: &str = "/bin/xtask";

/// memtrace there.
pub(super) const MEMTRACE: &str = "/bin/memtrace";

/// What traces a victim there.
pub(super) const TRACE: [&str; 2] = ["sh", "/trace.sh"];

/// Fetches what the builds and the guest need.
pub(super) fn fetch(workspace: &Workspace) -> Result<()> {
    let folder = folder(workspace);
    let system = folder.join("system");
    if !SYSTEM_FILES.iter().all(|file| system.join(file).exists()) {
        unpack(&folder, &system, &SYSTEM_PACKAGES.map(str::to_owned))?;
    }
    if !has_target("rustc")? && !library(workspace).is_dir() {
        let shown = ["-W", "-f", "${Version}", LIBRARY_PACKAGE];
        let version = command::answer(Command::new("dpkg-query").args(shown))
            .with_context(|| format!("no Rust compiler here has {TARGET}. By rustup: rustup target add {TARGET}"))?;
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
    images::renew(into)?;
    apt.update()?;
    packages.iter().try_for_each(|package| apt.unpack(package, into).map(drop))
}

/// Whether a compiler can build for the machine by itself.
fn has_target(compiler: &str) -> Result<bool> {
    let root = command::answer(Command::new(compiler).args(["--print", "sysroot"]))
        .with_context(|| format!("{compiler} cannot be asked where it lies"))?;
    Ok(Path::new(&root).join("lib/rustlib").join(TARGET).is_dir())
}

/// Builds all that the guest runs.
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

/// The guest's files: where each lies there, and here.
pub(super) fn files(workspace: &Workspace) -> Vec<(String, PathBuf)> {
    let folder = folder(workspace);
    // Not optimised: for one trace that would take longer than it saves.
    let built = folder.join("target").join(TARGET).join("debug");
    let system = SYSTEM_FILES.iter().map(|file| ((*file).to_owned(), folder.join("system").join(file)));
    let objects = Variant::ALL.map(|variant| {
        let object = workspace.bpf().object(Machine::Aarch64, variant);
        (format!("checkout/target/bpf/{}/{}.bpf.o", Machine::Aarch64.name(), variant.name()), object)
    });
    let own = [
        (MEMTRACE[1..].to_owned(), built.join("memtrace")),
        (ASKER[1..].to_owned(), built.join("xtask")),
        (String::from("victim/exact"), folder.join("exact")),
        (String::from("trace.sh"), workspace.join("xtask/src/kernels/trace.sh")),
        (CHECKOUT[1..].to_owned() + "/Cargo.toml", workspace.join("xtask/Cargo.toml")),
    ];
    system.chain(objects).chain(own).collect()
}

/// Compares the report of a trace with the victim's books, as [`TRACE`] writes both.
pub(super) fn compare(told: &str) -> Result<()> {
    let line = |name: &str| -> Result<Value> {
        let text = told.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        serde_json::from_str(text).with_context(|| format!("{name}is no JSON"))
    };
    let (books, report) = (line("books ")?, line("report ")?);
    let [process] = report["processes"].as_array().map_or(&[][..], Vec::as_slice) else {
        bail!("the report is not of one process");
    };
    let numbers = ["live_bytes", "live_count", "alloc_bytes", "alloc_count", "free_bytes", "free_count"];
    for number in numbers {
        let (has, had) = (&process["totals"][number], &books[number]);
        if has != had || !had.is_u64() {
            bail!("the report's {number} is {has}, and the books' {had}");
        }
    }
    let losses = report["losses"].as_object().context("the report does not say what was lost")?;
    if losses.values().any(|count| *count != 0) || books["alloc_count"] == 0 {
        bail!("something was lost, or nothing was done: {}, {books}", report["losses"]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKS: &str =
        r#"{"live_bytes":1,"live_count":1,"alloc_bytes":3,"alloc_count":2,"free_bytes":2,"free_count":1}"#;

    fn told(totals: &str, losses: &str) -> String {
        format!("attached\nbooks {BOOKS}\nreport {{\"processes\":[{{\"totals\":{totals}}}],\"losses\":{losses}}}")
    }

    #[test]
    fn a_report_must_have_the_numbers_of_the_books_and_no_losses() {
        compare(&told(BOOKS, r#"{"probe_missed":0}"#)).unwrap();
        assert!(compare(&told(&BOOKS.replace('3', "4"), "{}")).unwrap_err().to_string().contains("alloc_bytes"));
        assert!(compare(&told(BOOKS, r#"{"probe_missed":1}"#)).unwrap_err().to_string().contains("probe_missed"));
        assert!(compare(&told("{}", "{}")).is_err());
        assert!(compare("books {}").is_err());
    }
}
