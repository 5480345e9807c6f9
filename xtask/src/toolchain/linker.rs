//! bpf-linker: found, or built against an installed LLVM.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::ask;
use super::llvm::Llvm;
use crate::workspace::Workspace;
use crate::{command, ui};

/// The version that is built. Others with the same major and minor number do as well.
const VERSION: &str = "0.13.0";
const COMPATIBLE: &str = "0.13.";

/// A linker that was built before for version `llvm` or a later one, or else one in `PATH`.
///
/// What a linker in `PATH` was built against it does not say; the user has chosen it, and it is tried.
pub(super) fn find(workspace: &Workspace, llvm: u32) -> Option<PathBuf> {
    let own = (llvm..=*super::llvm::SUPPORTED.end()).map(|major| folder(workspace, major).join("bin/bpf-linker"));
    own.chain(command::in_path("bpf-linker"))
        .find(|linker| ask(linker, "--version").is_some_and(|version| is_compatible(&version)))
}

/// Builds the linker into the workspace's target folder.
pub(super) fn install(workspace: &Workspace, llvm: &Llvm) -> Result<PathBuf> {
    let folder = folder(workspace, llvm.major);
    ui::step(&format!("Building bpf-linker {VERSION} with LLVM {} into {}", llvm.major, folder.display()));
    command::run(
        command::cargo()
            .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--force", "--no-default-features"])
            .args(["--features", &format!("llvm-{}", llvm.major), "--root"])
            .arg(&folder)
            // Outside of the workspace, whose settings are not the linker's.
            .current_dir(std::env::temp_dir())
            // Its build asks the first llvm-config in PATH.
            .env("PATH", command::path_with(&llvm.bin)?),
    )
    .context("bpf-linker could not be built; put one of version 0.13 into PATH instead")?;
    Ok(folder.join("bin/bpf-linker"))
}

/// One folder for each LLVM, since a linker reads the bitcode of its own and earlier versions only.
fn folder(workspace: &Workspace, llvm: u32) -> PathBuf {
    workspace.join(&format!("target/tools/llvm-{llvm}"))
}

/// Whether what `bpf-linker --version` says is a version that fits.
fn is_compatible(answer: &str) -> bool {
    answer.split_whitespace().nth(1).is_some_and(|version| version.starts_with(COMPATIBLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_minor_version_has_to_fit() {
        assert!(is_compatible("bpf-linker 0.13.0"));
        assert!(is_compatible("bpf-linker 0.13.7"));
        assert!(!is_compatible("bpf-linker 0.12.0"));
        assert!(!is_compatible("bpf-linker 0.130.0"));
        assert!(!is_compatible(""));
    }

    #[test]
    fn the_version_that_is_built_fits() {
        assert!(VERSION.starts_with(COMPATIBLE));
    }
}
