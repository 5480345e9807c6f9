//! Locates the BPF object to embed, and fails if it is older than its sources.

use std::env;
use std::path::{Path, PathBuf};

use bpf_artifact::{Artifacts, Freshness, Machine};

/// Name of the environment variable that passes the object's path to the compiler. A packager may set the variable to an object
/// that was built elsewhere. Its freshness is not checked.
const VARIABLE: &str = "MEMTRACE_BPF_OBJECT";

fn main() {
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    match named().unwrap_or_else(built) {
        Ok(object) => {
            println!("cargo:rerun-if-changed={}", object.display());
            println!("cargo:rustc-env={VARIABLE}={}", object.display());
        }
        // Cargo shows only this line of the script's output.
        Err(reason) => println!("cargo::error={reason}"),
    }
}

/// Returns the object that `MEMTRACE_BPF_OBJECT` names, if the variable is set.
fn named() -> Option<Result<PathBuf, String>> {
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
    Some(
        PathBuf::from(&named)
            .canonicalize()
            .map_err(|error| format!("cannot use {}, the value of {VARIABLE}: {error}", named.display())),
    )
}

/// Returns the object that `cargo xtask bpf` built for the target architecture.
fn built() -> Result<PathBuf, String> {
    let package = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo did not set CARGO_MANIFEST_DIR")?;
    let root = Path::new(&package).ancestors().nth(2).ok_or("the package is in no workspace")?;
    let name = env::var("CARGO_CFG_TARGET_ARCH").map_err(|_| "cargo did not set CARGO_CFG_TARGET_ARCH")?;
    let machine = Machine::from_name(&name).ok_or_else(|| format!("there is no BPF object for {name}"))?;
    let artifacts = Artifacts::at(root);
    for path in [artifacts.source_folders(), vec![artifacts.stamp(machine)]].concat() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let unreadable = |error| format!("cannot read the sources of the BPF object: {error}");
    for path in artifacts.sources().map_err(unreadable)? {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let command = if machine == Machine::OWN { "cargo xtask bpf" } else { "cargo xtask bpf --machine aarch64" };
    match artifacts.freshness(machine).map_err(unreadable)? {
        Freshness::Fresh => Ok(artifacts.object(machine)),
        Freshness::Stale => Err(format!("the BPF object is older than its sources; rebuild it: {command}")),
        Freshness::Missing => Err(format!("the BPF object has not been built; build it: {command}")),
    }
}
