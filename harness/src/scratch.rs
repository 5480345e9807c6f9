//! Directories that are gone when a test is over.

use std::env;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process;

/// A directory of its own, which everybody may use, removed when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new directory.
    ///
    /// # Panics
    ///
    /// If it can't be made.
    #[must_use]
    pub fn new() -> Self {
        Self::within(&env::temp_dir())
    }

    /// Makes a new directory whose files are in memory, and on no disk.
    ///
    /// # Panics
    ///
    /// If it can't be made.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::within(Path::new("/dev/shm"))
    }

    fn within(folder: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // A process with this one's number may have left its own behind, also where guests see the host's.
        let path = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("memtrace-tests-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{} cannot be made: {error}", path.display()),
            }
        };
        fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("the directory is ours");
        Self(path)
    }

    /// Copies a program, to be run by anybody.
    ///
    /// Another process does it: a descriptor of our own for writing could be inherited by what another test starts, and
    /// as long as that is so the copy cannot be run (`ETXTBSY`).
    ///
    /// # Panics
    ///
    /// If it can't be copied.
    #[must_use]
    pub fn program(&self, from: &Path, name: &str) -> PathBuf {
        let path = self.join(name);
        process::run(Command::new("install").args(["-m", "755"]).arg(from).arg(&path));
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What remains is where such things are looked for, and a test that failed is not to fail twice.
        let _ = fs::remove_dir_all(&self.0);
    }
}
