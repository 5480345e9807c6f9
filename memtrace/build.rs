//! Locates the BPF objects to embed, and fails if they are older than their sources.

use std::env;
use std::path::{Path, PathBuf};

use bpf_artifact::{Artifacts, BpfVariant, Freshness, Machine};

/// Name of the environment variable that passes an object's path to the compiler. A packager may set the variables of
/// both variants to objects built elsewhere, which are used without a freshness check.
const fn variable(variant: BpfVariant) -> &'static str {
    match variant {
        BpfVariant::Atomics => "MEMTRACE_BPF_OBJECT",
        BpfVariant::Legacy => "MEMTRACE_BPF_OBJECT_LEGACY",
    }
}

fn main() {
    match find() {
        Ok(objects) => {
            for (variant, object) in BpfVariant::ALL.into_iter().zip(objects) {
                println!("cargo:rerun-if-changed={}", object.display());
                println!("cargo:rustc-env={}={}", variable(variant), object.display());
            }
        }
        // Cargo prints only this line, without the script's other output.
        Err(reason) => println!("cargo::error={reason}"),
    }
}

fn find() -> Result<[PathBuf; 2], String> {
    match BpfVariant::ALL.map(named) {
        [Some(usual), Some(legacy)] => Ok([usual?, legacy?]),
        [None, None] => built(),
        _ => {
            Err(format!("set both {} and {}, or neither", variable(BpfVariant::Atomics), variable(BpfVariant::Legacy)))
        }
    }
}

/// Returns the object that the variant's variable names, if it is set.
fn named(variant: BpfVariant) -> Option<Result<PathBuf, String>> {
    let variable = variable(variant);
    println!("cargo:rerun-if-env-changed={variable}");
    let named = env::var_os(variable).filter(|value| !value.is_empty())?;
    Some(
        PathBuf::from(&named)
            .canonicalize()
            .map_err(|error| format!("cannot use {}, the value of {variable}: {error}", named.display())),
    )
}

/// Returns the objects that `cargo xtask bpf` built for the target architecture.
fn built() -> Result<[PathBuf; 2], String> {
    let package = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo did not set CARGO_MANIFEST_DIR")?;
    let root = Path::new(&package).parent().ok_or("the package is in no workspace")?;
    let name = env::var("CARGO_CFG_TARGET_ARCH").map_err(|_| "cargo did not set CARGO_CFG_TARGET_ARCH")?;
    let machine = Machine::from_name(&name).ok_or_else(|| format!("there are no BPF objects for {name}"))?;
    let artifacts = Artifacts::at(root);
    for path in [artifacts.source_folders(), vec![artifacts.stamp(machine)]].concat() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let unreadable = |error| format!("cannot read the sources of the BPF objects: {error}");
    for path in artifacts.sources().map_err(unreadable)? {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let command = if machine == Machine::OWN { "cargo xtask bpf" } else { "cargo xtask bpf --machine aarch64" };
    for variant in BpfVariant::ALL {
        match artifacts.freshness(machine, variant).map_err(unreadable)? {
            Freshness::Fresh => {}
            Freshness::Stale => {
                return Err(format!("the BPF objects are older than their sources; rebuild them: {command}"));
            }
            Freshness::Missing => {
                return Err(format!("the BPF objects have not been built; build them: {command}"));
            }
        }
    }
    Ok(BpfVariant::ALL.map(|variant| artifacts.object(machine, variant)))
}
