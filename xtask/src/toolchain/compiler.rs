//! Rust compilers that can build for BPF.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::version::{ask, llvm_major};
use crate::command;

/// Rust compiler that can build for BPF.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    kind: Kind,
    version: String,
    /// Major version of the compiler's LLVM. The linker must read the bitcode of this version.
    pub(super) llvm: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A rustup nightly with rust-src. Cargo builds `core` with it.
    Nightly { toolchain: String },
    /// A compiler with a compiled `core` for BPF.
    Compiled { rustc: PathBuf },
}

impl Compiler {
    /// Returns a `cargo build` with this compiler.
    pub(super) fn cargo_build(&self) -> Command {
        match &self.kind {
            Kind::Nightly { toolchain } => {
                let mut command = Command::new("rustup");
                // The cargo that has started xtask sets RUSTC to its own compiler.
                command.args(["run", toolchain, "cargo", "build", "-Zbuild-std=core"]).env_remove("RUSTC");
                command
            }
            Kind::Compiled { rustc } => {
                let mut command = command::cargo();
                // The BPF crates use unstable features.
                command.arg("build").env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
                command
            }
        }
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Nightly { toolchain } => write!(out, "{} of {toolchain}, with rust-src", self.version),
            Kind::Compiled { rustc } => write!(out, "{} at {}", self.version, rustc.display()),
        }
    }
}

/// Returns the compilers that can build for BPF, in order of preference.
pub(super) fn find() -> Vec<Compiler> {
    nightlies().into_iter().chain(compiled()).collect()
}

fn nightlies() -> Vec<Compiler> {
    let listed = command::answer(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with("nightly")).filter_map(nightly).collect()
}

fn nightly(toolchain: &str) -> Option<Compiler> {
    let rustc = |argument: &[&str]| {
        command::answer(Command::new("rustup").args(["run", toolchain, "rustc"]).args(argument).env_remove("RUSTC"))
    };
    let sysroot = rustc(&["--print", "sysroot"])?;
    if !Path::new(&sysroot).join("lib/rustlib/src/rust/library/core").is_dir() {
        return None;
    }
    let (version, llvm) = versions(&rustc(&["-vV"])?)?;
    Some(Compiler { kind: Kind::Nightly { toolchain: toolchain.to_owned() }, version, llvm })
}

fn compiled() -> Vec<Compiler> {
    let mut candidates = command::in_path("rustc");
    candidates.push(PathBuf::from("/usr/bin/rustc"));
    let mut seen = BTreeSet::new();
    candidates.retain(|rustc| seen.insert(rustc.clone()));
    candidates.into_iter().filter_map(with_compiled_core).collect()
}

fn with_compiled_core(rustc: PathBuf) -> Option<Compiler> {
    let sysroot = command::answer(Command::new(&rustc).args(["--print", "sysroot"]))?;
    if !has_compiled_core(&Path::new(&sysroot).join("lib/rustlib/bpfel-unknown-none/lib")) {
        return None;
    }
    let (version, llvm) = versions(&ask(&rustc, "-vV")?)?;
    Some(Compiler { kind: Kind::Compiled { rustc }, version, llvm })
}

fn has_compiled_core(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libcore-") && name.ends_with(".rlib")
        })
    })
}

/// Returns the first line of `rustc -vV` and the major version of LLVM.
fn versions(verbose: &str) -> Option<(String, u32)> {
    let llvm = verbose.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    Some((verbose.lines().next()?.to_owned(), llvm_major(llvm)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_from_verbose_output() {
        let verbose = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nrelease: 1.96.0\nLLVM version: 22.1.8";
        assert_eq!(versions(verbose), Some((String::from("rustc 1.96.0 (ac68faa20 2026-05-25)"), 22)));
        assert_eq!(versions("rustc 1.96.0"), None);
    }

    #[test]
    fn folder_without_core_is_not_accepted() {
        assert!(!has_compiled_core(Path::new("/nonexistent")));
        assert!(!has_compiled_core(Path::new("/")));
    }
}
