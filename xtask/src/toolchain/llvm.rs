//! LLVM libraries that are installed. The build of the linker needs them.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::version::{ask, llvm_major};
use crate::{command, debian};

/// Major versions of LLVM that bpf-linker has a feature for.
pub(super) const SUPPORTED: RangeInclusive<u32> = 21..=23;

/// Packages that the build of the linker needs, except LLVM.
const BUILD_PACKAGES: [&str; 6] = ["libzstd-dev", "zlib1g-dev", "pkg-config", "gcc", "g++", "make"];

/// Installed LLVM with its development files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Llvm {
    /// Major version.
    pub(super) major: u32,
    /// Folder with `llvm-config`.
    pub(super) bin: PathBuf,
}

/// Returns the oldest installed LLVM that reads bitcode of version `compiler`: the same version or later.
pub(super) fn find(compiler: u32) -> Option<Llvm> {
    choose(&installed(), compiler)
}

/// Installs LLVM of version `compiler`, and the packages that the build of the linker needs.
pub(super) fn install(compiler: u32) -> Result<()> {
    let llvm = [format!("llvm-{compiler}-dev"), format!("libpolly-{compiler}-dev")];
    let packages: Vec<&str> = llvm.iter().map(String::as_str).chain(BUILD_PACKAGES).collect();
    debian::install(&packages, "building bpf-linker (or put a compatible bpf-linker in PATH)")
}

fn choose(installed: &BTreeSet<Llvm>, compiler: u32) -> Option<Llvm> {
    installed.iter().find(|llvm| llvm.major >= compiler && SUPPORTED.contains(&llvm.major)).cloned()
}

fn installed() -> BTreeSet<Llvm> {
    let mut configs = command::in_path("llvm-config");
    // Debian installs each version in a separate folder.
    for entry in fs::read_dir("/usr/lib").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("llvm-") {
            configs.push(entry.path().join("bin/llvm-config"));
        }
    }
    configs.iter().filter_map(|config| inspect(config)).collect()
}

fn inspect(config: &Path) -> Option<Llvm> {
    let major = llvm_major(&ask(config, "--version")?)?;
    // Without headers, only the tools are installed.
    let headers = PathBuf::from(ask(config, "--includedir")?).join("llvm-c/Core.h");
    headers.is_file().then_some(())?;
    Some(Llvm { major, bin: config.parent()?.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(majors: &[u32]) -> BTreeSet<Llvm> {
        majors.iter().map(|&major| Llvm { major, bin: PathBuf::from(format!("/llvm-{major}/bin")) }).collect()
    }

    fn chosen(majors: &[u32], compiler: u32) -> Option<u32> {
        choose(&installed(majors), compiler).map(|llvm| llvm.major)
    }

    #[test]
    fn version_of_the_compiler_is_preferred() {
        assert_eq!(chosen(&[14, 22, 23], 22), Some(22));
    }

    #[test]
    fn later_version_is_accepted_and_earlier_is_not() {
        assert_eq!(chosen(&[23], 22), Some(23));
        assert_eq!(chosen(&[21], 22), None);
    }

    #[test]
    fn version_unsupported_by_the_linker_is_skipped() {
        assert_eq!(chosen(&[14], 14), None);
        assert_eq!(chosen(&[24], 22), None);
    }
}
