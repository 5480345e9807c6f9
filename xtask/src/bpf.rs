//! `cargo xtask bpf`: builds the BPF object, and stamps it with the sources that it was built from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::toolchain::{self, Toolchain};
use crate::workspace::Workspace;
use crate::{command, kernels, say, setup, verified};

/// Debug information becomes BTF, without which the kernel half cannot be loaded; v3 has the atomic instructions that
/// the programs need (Linux 5.12).
const RUSTFLAGS: &str = "-Cdebuginfo=2 -Clink-arg=--btf -Ctarget-cpu=v3";

/// How often the sources may change under a running build before it is given up.
const ATTEMPTS: usize = 3;

/// Builds the object; with `--kernels` it asks the verifiers of other kernels too.
pub(crate) fn run_with(workspace: &Workspace, options: &[String]) -> Result<()> {
    let kernels = kernels::asked_for(options)?;
    run(workspace)?;
    match kernels {
        Some(kernels) => {
            setup::for_guests(workspace, &kernels)?;
            kernels::verify(workspace, &kernels)
        }
        None => Ok(()),
    }
}

/// Builds the object.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let toolchain = toolchain::obtain(workspace)?;
    say::step("Building the BPF object");
    for _ in 0..ATTEMPTS {
        let before = fingerprint(workspace)?;
        let built = build(workspace, &toolchain)?;
        // Cargo writes a missing lock file, and somebody may be editing: only what stayed the same is what was built.
        if fingerprint(workspace)? == before {
            place(workspace, &built, &before)?;
            return verified::check(workspace);
        }
    }
    bail!("the sources of the BPF object keep changing while it is built")
}

fn fingerprint(workspace: &Workspace) -> Result<String> {
    workspace.bpf().fingerprint().context("the sources of the BPF object cannot be read")
}

fn build(workspace: &Workspace, toolchain: &Toolchain) -> Result<PathBuf> {
    let target = workspace.join("target/bpf");
    command::run(
        toolchain
            .cargo_build()
            .arg("--release")
            .arg("--target-dir")
            .arg(&target)
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_RUSTFLAGS", RUSTFLAGS)
            // These would take the place of the target's own flags.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .current_dir(workspace.join("memtrace-ebpf")),
    )?;
    Ok(target.join("bpfel-unknown-none/release"))
}

fn place(workspace: &Workspace, built: &Path, sources: &str) -> Result<()> {
    let files = workspace.bpf();
    let (object, stamp) = (files.object(), files.stamp());
    copy(&built.join("memtrace-ebpf"), &object)?;
    copy(&built.join("floor"), &files.floor())?;
    if fs::read_to_string(&stamp).ok().as_deref() != Some(sources) {
        fs::write(&stamp, sources).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    say::note(&format!("the object is {}", object.display()));
    Ok(())
}

/// An unchanged object keeps its time, so that memtrace is not built again for nothing.
fn copy(built: &Path, object: &Path) -> Result<()> {
    let unchanged = fs::read(object).is_ok_and(|old| fs::read(built).is_ok_and(|new| old == new));
    if !unchanged {
        fs::copy(built, object).with_context(|| format!("cannot write {}", object.display()))?;
    }
    Ok(())
}
