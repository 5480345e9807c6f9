//! `cargo xtask bpf`: builds the BPF objects, and stamps them with the sources that they were built from.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::{Machine, Variant};

use crate::toolchain::{self, Toolchain};
use crate::workspace::Workspace;
use crate::{command, kernels, setup, ui, verifier};

/// Debug information becomes BTF, without which the kernel half cannot be loaded; v3 has instructions on halves of
/// registers (Linux 5.1).
const RUSTFLAGS: &str = "-Cdebuginfo=2 -Clink-arg=--btf -Ctarget-cpu=v3";

/// How often the sources may change under a running build before it is given up.
const ATTEMPTS: usize = 3;

/// Says for which machine's registers to build (aya-build).
const REGISTERS_OF: &str = "AYA_BPF_TARGET_ARCH";

/// Builds the objects; with `--kernels` it asks the verifiers of other kernels too, and with `--machine` it builds for
/// another machine.
pub(crate) fn run_with(workspace: &Workspace, options: &[String]) -> Result<()> {
    if let [option, name] = options
        && option == "--machine"
    {
        let machine = Machine::named(name).with_context(|| format!("there are no objects for {name}"))?;
        return build_for(workspace, machine);
    }
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

/// Builds the objects for this machine, and asks its verifier.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    build_for(workspace, Machine::OWN)?;
    verifier::check(workspace)
}

/// Builds the objects for a machine.
pub(crate) fn build_for(workspace: &Workspace, machine: Machine) -> Result<()> {
    let toolchain = toolchain::obtain(workspace)?;
    ui::step(&format!("Building the BPF objects for {}", machine.name()));
    for _ in 0..ATTEMPTS {
        let before = fingerprint(workspace)?;
        for variant in Variant::ALL {
            build(workspace, &toolchain, machine, variant)?;
        }
        // Cargo writes a missing lock file, and somebody may be editing: only what stayed the same is what was built.
        if fingerprint(workspace)? == before {
            return stamp(workspace, machine, &before);
        }
    }
    bail!("the sources of the BPF objects keep changing while it is built")
}

fn fingerprint(workspace: &Workspace) -> Result<String> {
    workspace.bpf().fingerprint().context("the sources of the BPF objects cannot be read")
}

fn build(workspace: &Workspace, toolchain: &Toolchain, machine: Machine, variant: Variant) -> Result<()> {
    let files = workspace.bpf();
    let target = files.folder(machine);
    let (features, floor): (&[&str], _) = match variant {
        Variant::Usual => (&[], Some(files.floor())),
        Variant::Plain => (&["--features", "plain"], None),
    };
    command::run(
        toolchain
            .cargo_build()
            .args(["--release", "--target-dir"])
            .arg(&target)
            .args(features)
            .env(REGISTERS_OF, machine.name())
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_RUSTFLAGS", RUSTFLAGS)
            // These would take the place of the target's own flags.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .current_dir(workspace.join("memtrace-ebpf")),
    )?;
    let built = target.join("bpfel-unknown-none/release");
    if let Some(floor) = floor.filter(|_| machine == Machine::OWN) {
        copy(&built.join("floor"), &floor)?;
    }
    let object = files.object(machine, variant);
    copy(&built.join("memtrace-ebpf"), &object)?;
    ui::note(&format!("an object is {}", object.display()));
    Ok(())
}

fn stamp(workspace: &Workspace, machine: Machine, sources: &str) -> Result<()> {
    let stamp = workspace.bpf().stamp(machine);
    if fs::read_to_string(&stamp).ok().as_deref() != Some(sources) {
        fs::write(&stamp, sources).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
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
