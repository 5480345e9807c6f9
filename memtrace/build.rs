//! Finds the BPF objects that memtrace carries, and refuses those that were built from other sources.

use std::env;
use std::path::{Path, PathBuf};

use bpf_artifact::{Machine, Object, Variant, Workspace};

/// What names the object to the compiler. A builder of packages names objects of its own by the same variables, both of
/// them; they are taken as they are.
const fn variable(variant: Variant) -> &'static str {
    match variant {
        Variant::Usual => "MEMTRACE_BPF_OBJECT",
        Variant::Plain => "MEMTRACE_BPF_OBJECT_PLAIN",
    }
}

fn main() {
    match find() {
        Ok(objects) => {
            for (variant, object) in Variant::ALL.into_iter().zip(objects) {
                println!("cargo:rerun-if-changed={}", object.display());
                println!("cargo:rustc-env={}={}", variable(variant), object.display());
            }
        }
        // This alone fails the build, and without all that the script has written before.
        Err(reason) => println!("cargo::error={reason}"),
    }
}

fn find() -> Result<[PathBuf; 2], String> {
    match Variant::ALL.map(named) {
        [Some(usual), Some(plain)] => Ok([usual?, plain?]),
        [None, None] => built(),
        _ => Err(format!(
            "of {} and {}, both name an object or none does",
            variable(Variant::Usual),
            variable(Variant::Plain)
        )),
    }
}

/// The object that the variant's variable names.
fn named(variant: Variant) -> Option<Result<PathBuf, String>> {
    let variable = variable(variant);
    println!("cargo:rerun-if-env-changed={variable}");
    let named = env::var_os(variable).filter(|value| !value.is_empty())?;
    Some(
        PathBuf::from(&named)
            .canonicalize()
            .map_err(|error| format!("{variable} names {}, which cannot be used: {error}", named.display())),
    )
}

/// Those that were built here, for the machine that memtrace is built for.
fn built() -> Result<[PathBuf; 2], String> {
    let package = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo did not say where the package lies")?;
    let root = Path::new(&package).parent().ok_or("the package lies in no workspace")?;
    let name = env::var("CARGO_CFG_TARGET_ARCH").map_err(|_| "cargo did not say what is built for")?;
    let machine = Machine::named(&name).ok_or_else(|| format!("there is no kernel half for {name}"))?;
    let workspace = Workspace::at(root);
    for path in [workspace.source_folders(), vec![workspace.stamp(machine)]].concat() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let unreadable = |error| format!("the sources of the BPF objects cannot be read: {error}");
    for path in workspace.sources().map_err(unreadable)? {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let command = if machine == Machine::OWN { "cargo xtask bpf" } else { "cargo xtask bpf --machine aarch64" };
    for variant in Variant::ALL {
        match workspace.object_state(machine, variant).map_err(unreadable)? {
            Object::Fresh => {}
            Object::Stale => {
                return Err(format!("the BPF objects were built from other sources; build them anew: {command}"));
            }
            Object::Missing => return Err(format!("the BPF objects have not been built yet; build them: {command}")),
        }
    }
    Ok(Variant::ALL.map(|variant| workspace.object(machine, variant)))
}
