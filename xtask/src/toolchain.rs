//! Toolchain of the BPF programs: a compiler with `core` for BPF, and a linker that reads the compiler's bitcode.

mod compiler;
mod linker;
mod llvm;
mod version;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use compiler::Compiler;

use crate::workspace::Workspace;
use crate::{debian, ui};

/// Packages with Debian's stable compiler and a compiled `core` for BPF.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "libstd-rust-web-dev-bpf"];

/// Compatible pair of compiler and linker.
pub(crate) struct Toolchain {
    compiler: Compiler,
    linker: PathBuf,
}

impl Toolchain {
    /// Returns a `cargo build` for BPF. The caller adds the package and the folders.
    pub(crate) fn cargo_build(&self) -> Command {
        let mut cargo = self.compiler.cargo_build();
        cargo.args(["--target", "bpfel-unknown-none"]);
        cargo.env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        cargo
    }
}

/// Finds a toolchain, or installs the missing parts of one.
///
/// # Errors
///
/// A part is missing and cannot be installed. The error says how to install it by hand.
pub(crate) fn obtain(workspace: &Workspace) -> Result<Toolchain> {
    let mut compilers = compiler::find();
    if compilers.is_empty() {
        debian::install(COMPILER_PACKAGES, "a Rust compiler that can build for BPF").with_context(
            || "no Rust compiler can build for BPF. With rustup: rustup toolchain install nightly --component rust-src",
        )?;
        compilers = compiler::find();
    }
    let Some(first) = compilers.first() else {
        bail!("no Rust compiler can build for BPF, although these packages are installed: {COMPILER_PACKAGES:?}");
    };
    // An installed pair is preferred, because the first compiler may have no linker.
    let ready = compilers.iter().find_map(|compiler| Some((compiler, linker::find(workspace, compiler.llvm)?)));
    let (compiler, linker) = match ready {
        Some(pair) => pair,
        None => match compilers.iter().find_map(|compiler| Some((compiler, llvm::find(compiler.llvm)?))) {
            Some((compiler, llvm)) => (compiler, linker::install(workspace, &llvm)?),
            None => {
                llvm::install(first.llvm)?;
                let llvm = llvm::find(first.llvm).context("LLVM is installed, but its llvm-config was not found")?;
                (first, linker::install(workspace, &llvm)?)
            }
        },
    };
    ui::note(&format!("BPF compiler: {compiler}"));
    ui::note(&format!("BPF linker: {}", linker.display()));
    Ok(Toolchain { compiler: compiler.clone(), linker })
}
