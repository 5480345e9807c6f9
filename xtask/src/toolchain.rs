//! What the BPF side is built with, found by looking: a compiler that can make core for BPF, and a linker that reads
//! the bitcode of that compiler.

mod compiler;
mod linker;
mod llvm;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use compiler::Compiler;

use crate::workspace::Workspace;
use crate::{command, debian, ui};

/// Debian's compiler with core for BPF: no nightly, no sources of the standard library.
const COMPILER_PACKAGES: &[&str] = &["rustc-web", "libstd-rust-web-dev-bpf"];

/// A compiler and a linker that fit each other.
pub(crate) struct Toolchain {
    compiler: Compiler,
    linker: PathBuf,
}

impl Toolchain {
    /// A `cargo build` that compiles and links for BPF; package and folders are still to be named.
    pub(crate) fn cargo_build(&self) -> Command {
        let mut cargo = self.compiler.cargo_build();
        cargo.args(["--target", "bpfel-unknown-none"]);
        cargo.env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        cargo
    }
}

/// Finds a toolchain, or installs what is missing of one, saying so.
///
/// # Errors
///
/// When something is missing and cannot be installed; the error says what to install by hand.
pub(crate) fn obtain(workspace: &Workspace) -> Result<Toolchain> {
    let mut compilers = compiler::find();
    if compilers.is_empty() {
        debian::install(COMPILER_PACKAGES, "a Rust compiler that can build for BPF").with_context(
            || "no Rust compiler can build for BPF. By rustup: rustup toolchain install nightly --component rust-src",
        )?;
        compilers = compiler::find();
    }
    let Some(first) = compilers.first() else {
        bail!("no Rust compiler can build for BPF, though packages for it were installed: {COMPILER_PACKAGES:?}");
    };
    // Two compilers may be there and the linker of one only: a pair that fits goes before the order of preference.
    let ready = compilers.iter().find_map(|compiler| Some((compiler, linker::find(workspace, compiler.llvm)?)));
    let (compiler, linker) = match ready {
        Some(pair) => pair,
        None => match compilers.iter().find_map(|compiler| Some((compiler, llvm::find(compiler.llvm)?))) {
            Some((compiler, llvm)) => (compiler, linker::install(workspace, &llvm)?),
            None => {
                llvm::install(first.llvm)?;
                let llvm = llvm::find(first.llvm).context("LLVM was installed, but its llvm-config is not found")?;
                (first, linker::install(workspace, &llvm)?)
            }
        },
    };
    ui::note(&format!("BPF compiler: {compiler}"));
    ui::note(&format!("BPF linker: {}", linker.display()));
    Ok(Toolchain { compiler: compiler.clone(), linker })
}

/// What a compiler says about itself: the number behind `LLVM version: `, up to its first point.
fn llvm_major(version: &str) -> Option<u32> {
    version.split('.').next()?.trim().parse().ok()
}

/// The answer of a program called `name` to one argument.
fn ask(program: &std::path::Path, argument: &str) -> Option<String> {
    command::answer(Command::new(program).arg(argument))
}
