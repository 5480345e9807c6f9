//! `cargo xtask lint`: formatting, clippy and tidy rules.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;
use crate::{bpf, command, tidy, ui};

/// Builds the BPF objects and runs the checks.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    bpf::run(workspace)?;
    check_code(workspace)?;
    tidy::run(workspace)
}

/// Checks the formatting and clippy's lints. The BPF objects must exist, because clippy compiles memtrace.
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
    ]))
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
