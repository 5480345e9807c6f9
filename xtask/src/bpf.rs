//! `cargo xtask bpf`: builds the BPF objects and stamps them with the fingerprint of their sources.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::Machine;

use crate::toolchain::{self, Toolchain};
use crate::workspace::Workspace;
use crate::{command, ui, verifier};

/// Flags of the build. The linker makes BTF from debug information, and BPF programs without BTF cannot be loaded. `v3`
/// enables 32-bit ALU and jump instructions (Linux 5.1).
const RUSTFLAGS: &str = "-Cdebuginfo=2 -Clink-arg=--btf -Ctarget-cpu=v3";

/// Maximum number of builds. A build is repeated if the sources change during it.
const ATTEMPTS: usize = 3;

/// Environment variable with the architecture of the traced machine, which aya-build reads. It selects the layout of
/// the registers.
const REGISTERS_OF: &str = "AYA_BPF_TARGET_ARCH";

/// Builds the BPF objects for this machine, and checks the verified instruction counts.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    build_for(workspace, Machine::OWN)?;
    verifier::check(workspace)
}

/// Builds the BPF objects for a machine.
pub(crate) fn build_for(workspace: &Workspace, machine: Machine) -> Result<()> {
    let toolchain = toolchain::obtain(workspace)?;
    ui::step(&format!("Building the BPF objects for {}", machine.name()));
    for _ in 0..ATTEMPTS {
        let before = fingerprint(workspace)?;
        build(workspace, &toolchain, machine)?;
        // Cargo may write a missing lock file, and sources may be edited during the build.
        if fingerprint(workspace)? == before {
            return stamp(workspace, machine, &before);
        }
    }
    bail!("the sources of the BPF objects keep changing during the build")
}

fn fingerprint(workspace: &Workspace) -> Result<String> {
    workspace.bpf().fingerprint().context("cannot read the sources of the BPF objects")
}

fn build(workspace: &Workspace, toolchain: &Toolchain, machine: Machine) -> Result<()> {
    let files = workspace.bpf();
    let target = files.folder(machine);
    command::run(
        toolchain
            .cargo_build()
            .args(["--release", "--target-dir"])
            .arg(&target)
            .env(REGISTERS_OF, machine.name())
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_RUSTFLAGS", RUSTFLAGS)
            // These two variables would override `RUSTFLAGS` of the target.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            // An incremental build has more codegen units. The verifier refuses the code that the linker makes from these units.
            .env_remove("CARGO_INCREMENTAL")
            .current_dir(workspace.join("memtrace-ebpf")),
    )?;
    let built = target.join("bpfel-unknown-none/release");
    if machine == Machine::OWN {
        copy(&built.join("floor"), &files.floor())?;
    }
    let object = files.object(machine);
    copy(&built.join("memtrace-ebpf"), &object)?;
    ui::note(&format!("BPF object: {}", object.display()));
    Ok(())
}

fn stamp(workspace: &Workspace, machine: Machine, sources: &str) -> Result<()> {
    let stamp = workspace.bpf().stamp(machine);
    if fs::read_to_string(&stamp).ok().as_deref() != Some(sources) {
        fs::write(&stamp, sources).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    Ok(())
}

/// Copies `built` to `object`, unless they are identical. A new modification time would make Cargo rebuild memtrace.
fn copy(built: &Path, object: &Path) -> Result<()> {
    let unchanged = fs::read(object).is_ok_and(|old| fs::read(built).is_ok_and(|new| old == new));
    if !unchanged {
        fs::copy(built, object).with_context(|| format!("cannot write {}", object.display()))?;
    }
    Ok(())
}
