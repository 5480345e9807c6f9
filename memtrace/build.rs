//! Finds the BPF object that memtrace carries, and refuses one that was built from other sources.

use std::env;
use std::path::{Path, PathBuf};

use bpf_sources::{Object, Workspace};

/// A builder of packages names its own object here; it is taken as it is.
const OBJECT: &str = "MEMTRACE_BPF_OBJECT";

fn main() {
    println!("cargo:rerun-if-env-changed={OBJECT}");
    match find() {
        Ok(object) => {
            println!("cargo:rerun-if-changed={}", object.display());
            println!("cargo:rustc-env={OBJECT}={}", object.display());
        }
        // This alone fails the build, and without all that the script has written before.
        Err(reason) => println!("cargo::error={reason}"),
    }
}

fn find() -> Result<PathBuf, String> {
    if let Some(named) = env::var_os(OBJECT).filter(|value| !value.is_empty()) {
        return PathBuf::from(&named)
            .canonicalize()
            .map_err(|error| format!("{OBJECT} names {}, which cannot be used: {error}", named.display()));
    }
    let package = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo did not say where the package lies")?;
    let root = Path::new(&package).parent().ok_or("the package lies in no workspace")?;
    let workspace = Workspace::at(root);
    for path in [workspace.source_folders(), vec![workspace.stamp()]].concat() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let unreadable = |error| format!("the sources of the BPF object cannot be read: {error}");
    for path in workspace.sources().map_err(unreadable)? {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    match workspace.object_state().map_err(unreadable)? {
        Object::Fresh => Ok(workspace.object()),
        Object::Stale => {
            Err(String::from("the BPF object was built from other sources; build it anew: cargo xtask bpf"))
        }
        Object::Missing => Err(String::from("the BPF object has not been built yet; build it: cargo xtask bpf")),
    }
}
