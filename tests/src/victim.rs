//! The victims of this crate: their paths, and their start.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Victim;

/// Returns the path of the victim `name`. Names of victims in Rust begin with `victim-`.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let directory = if name.starts_with("victim-") { binaries() } else { Path::new(env!("OUT_DIR")).to_path_buf() };
    let path = directory.join(name);
    assert!(path.exists(), "there is no victim {}", path.display());
    path
}

/// Returns the directory with the executables of the workspace that cargo builds.
#[must_use]
pub fn binaries() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test is known");
    test.parent().and_then(Path::parent).expect("tests are built in target/PROFILE/deps").to_path_buf()
}

/// Starts the victim `name`, and waits until it is at its first barrier.
#[must_use]
pub fn start(name: &str) -> Victim {
    start_with(name, &[])
}

/// Starts the victim `name` with arguments, and waits until it is at its first barrier.
#[must_use]
pub fn start_with(name: &str, arguments: &[&str]) -> Victim {
    Victim::start(Command::new(path(name)).args(arguments))
}
