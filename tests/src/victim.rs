//! Victims: programs that wait at a barrier, work, and say what they did.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::books::Books;
use crate::process::{self, Process};

/// Where the victim `name` was built; `victim-…` are those in Rust.
///
/// # Panics
///
/// If it isn't there.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let directory = if name.starts_with("victim-") { binaries() } else { Path::new(env!("OUT_DIR")).to_path_buf() };
    let path = directory.join(name);
    assert!(path.exists(), "there is no victim {}", path.display());
    path
}

/// Where cargo puts the programs that it builds beside this test.
///
/// # Panics
///
/// If the test doesn't lie where cargo puts tests.
#[must_use]
pub fn binaries() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own path");
    test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps").to_path_buf()
}

/// A victim that waits at its first barrier, or works.
pub struct Victim {
    process: Process,
    pid: u32,
}

impl Victim {
    /// Starts the victim `name` and waits until it is at its barrier.
    ///
    /// # Panics
    ///
    /// If it doesn't come there.
    #[must_use]
    pub fn start(name: &str) -> Self {
        Self::start_with(name, &[])
    }

    /// As [`Victim::start`], with arguments.
    ///
    /// # Panics
    ///
    /// If it doesn't come to its barrier.
    #[must_use]
    pub fn start_with(name: &str, arguments: &[&str]) -> Self {
        Self::run(Command::new(path(name)).args(arguments))
    }

    /// Runs a command that becomes a victim, and waits until it is at its barrier.
    ///
    /// # Panics
    ///
    /// If it doesn't come there.
    #[must_use]
    pub fn run(command: &mut Command) -> Self {
        let mut process = Process::start(command);
        let line = process.line();
        let Some(pid) = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok()) else {
            panic!("{command:?} said `{line}` when it should be ready");
        };
        Self { process, pid }
    }

    /// The victim's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it pass its barrier, and returns its books when it has worked.
    ///
    /// # Panics
    ///
    /// If it prints no books.
    pub fn work(&mut self) -> Books {
        self.process.tell("");
        self.books()
    }

    /// The books that it prints next.
    ///
    /// # Panics
    ///
    /// If it prints none.
    pub fn books(&mut self) -> Books {
        let line = self.process.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("books that are none ({error}): {line}"))
    }

    /// Waits until it waits for its standard input: for programs that still allocate after they have said something.
    ///
    /// # Panics
    ///
    /// If it doesn't come there.
    pub fn wait_until_it_reads(&self) {
        process::wait_until_it_reads(self.pid);
    }

    /// Lets it pass its last barrier, and waits until it has ended well.
    ///
    /// # Panics
    ///
    /// If it doesn't end, or not well.
    pub fn finish(mut self) {
        self.process.tell("");
        let status = self.process.wait();
        assert!(status.success(), "the victim ended with {status}: {}", self.process.rest_of_errors());
    }

    /// The process behind the victim.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
