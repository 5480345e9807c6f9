//! Finds bpf-linker, or builds it against an installed LLVM.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::llvm::Llvm;
use super::version::ask;
use crate::workspace::Workspace;
use crate::{command, ui};

/// Version to build.
const VERSION: &str = "0.13.0";
/// Start of the compatible version numbers, which have the same major and minor number.
const COMPATIBLE: &str = "0.13.";

/// Returns a linker in the target folder for LLVM `llvm` or later, or else a linker in `PATH`.
///
/// A linker does not report its LLVM version, so the version of a linker in `PATH` is not checked.
pub(super) fn find(workspace: &Workspace, llvm: u32) -> Option<PathBuf> {
    let own = (llvm..=*super::llvm::SUPPORTED.end()).map(|major| folder(workspace, major).join("bin/bpf-linker"));
    own.chain(command::in_path("bpf-linker"))
        .find(|linker| ask(linker, "--version").is_some_and(|version| is_compatible(&version)))
}

/// Builds the linker in the workspace's target folder.
pub(super) fn install(workspace: &Workspace, llvm: &Llvm) -> Result<PathBuf> {
    let folder = folder(workspace, llvm.major);
    ui::step(&format!("Building bpf-linker {VERSION} with LLVM {} into {}", llvm.major, folder.display()));
    command::run(
        command::cargo()
            .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--force", "--no-default-features"])
            .args(["--features", &format!("llvm-{}", llvm.major), "--root"])
            .arg(&folder)
            // Outside of the workspace, the cargo configuration of the workspace does not apply.
            .current_dir(std::env::temp_dir())
            // The build uses the first llvm-config in PATH.
            .env("PATH", command::path_with(&llvm.bin)?),
    )
    .context("cannot build bpf-linker; put version 0.13 in PATH instead")?;
    Ok(folder.join("bin/bpf-linker"))
}

/// Returns the folder of the linker that is built with LLVM version `llvm`. A linker reads bitcode of its own LLVM
/// version and of earlier versions.
fn folder(workspace: &Workspace, llvm: u32) -> PathBuf {
    workspace.join(&format!("target/tools/llvm-{llvm}"))
}

/// Returns true if the output of `bpf-linker --version` is a compatible version.
fn is_compatible(answer: &str) -> bool {
    answer.split_whitespace().nth(1).is_some_and(|version| version.starts_with(COMPATIBLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_version_may_differ() {
        assert!(is_compatible("bpf-linker 0.13.0"));
        assert!(is_compatible("bpf-linker 0.13.7"));
        assert!(!is_compatible("bpf-linker 0.12.0"));
        assert!(!is_compatible("bpf-linker 0.130.0"));
        assert!(!is_compatible(""));
    }

    #[test]
    fn built_version_is_compatible() {
        assert!(VERSION.starts_with(COMPATIBLE));
    }
}
