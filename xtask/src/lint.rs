//! `cargo xtask lint`: formatting, clippy, rules for dependencies, and tidy rules.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;
use crate::{bpf, command, tidy, ui};

/// Version of cargo-deny that is installed if there is none.
const CARGO_DENY: &str = "0.20.2";

/// Builds the BPF objects and runs the checks.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    bpf::run(workspace)?;
    check_code(workspace)?;
    tidy::run(workspace)
}

/// Checks the formatting, clippy's lints and the dependencies. The BPF objects must exist, because clippy compiles memtrace.
pub(crate) fn check_code(workspace: &Workspace) -> Result<()> {
    ensure_components()?;
    ui::step("Checking the formatting");
    command::run(command::cargo().current_dir(workspace.root()).args(["fmt", "--all", "--check"]))?;
    for package in ["memtrace-ebpf", "fuzz"] {
        command::run(command::cargo().current_dir(workspace.join(package)).args(["fmt", "--check"]))?;
    }
    ui::step("Running clippy");
    command::run(command::cargo().current_dir(workspace.root()).args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    check_dependencies(workspace)
}

/// Checks the licenses, versions and sources of the dependencies of each workspace by `deny.toml`.
fn check_dependencies(workspace: &Workspace) -> Result<()> {
    ensure_cargo_deny()?;
    ui::step("Checking the dependencies");
    // In the first directory, cargo-deny checks all members of the main workspace.
    for directory in [".", "memtrace-ebpf", "fuzz"] {
        let mut deny = command::cargo();
        deny.current_dir(workspace.join(directory)).args(["deny", "--locked", "--log-level", "error", "--config"]);
        command::run(deny.arg(workspace.join("deny.toml")).args(["check", "bans", "licenses", "sources"]))?;
    }
    Ok(())
}

/// Builds cargo-deny for this user if it is missing. Without optimisations, the build takes one minute instead of four, and the
/// checks take some seconds.
fn ensure_cargo_deny() -> Result<()> {
    if command::answer(command::cargo().args(["deny", "--version"])).is_some() {
        return Ok(());
    }
    ui::step(&format!("Installing cargo-deny {CARGO_DENY}"));
    let mut install = command::cargo();
    // Outside of the workspace, the cargo configuration of the workspace does not apply.
    install.current_dir(std::env::temp_dir()).args(["install", "cargo-deny", "--version", CARGO_DENY]);
    command::run(install.args(["--locked", "--debug"])).context("the checks need cargo-deny")
}

/// Adds rustfmt and clippy to the Rust toolchain if they are missing.
fn ensure_components() -> Result<()> {
    let missing: Vec<&str> = ["fmt", "clippy"]
        .into_iter()
        .filter(|tool| command::answer(command::cargo().args([tool, "--version"])).is_none())
        .map(|tool| if tool == "fmt" { "rustfmt" } else { tool })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if command::in_path("rustup").is_empty() {
        bail!("the Rust toolchain lacks {}, and rustup is not in PATH to add it", missing.join(" "));
    }
    ui::step(&format!("Adding to the Rust toolchain: {}", missing.join(" ")));
    command::run(Command::new("rustup").args(["component", "add"]).args(&missing))
        .context("the checks need rustfmt and clippy")
}
