//! Temporary directories.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process;

/// A new directory that every user may use. Dropping it removes the directory and its content.
pub struct Scratch(PathBuf);

impl Scratch {
    #[must_use]
    pub fn new() -> Self {
        Self::create_in(&env::temp_dir().canonicalize().expect("the temporary directory exists"))
    }

    /// Creates a directory below `/dev/shm`, which is in memory and not on a disk.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::create_in(Path::new("/dev/shm"))
    }

    fn create_in(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // An earlier process with the same pid may have left its directory. Guests that share the file system of the
        // host can have the same pid.
        let path = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("memtrace-scratch-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create {}: {error}", path.display()),
            }
        };
        fs::set_permissions(&path, Permissions::from_mode(0o777))
            .expect("the permissions of a new directory can be set");
        Self(path)
    }

    /// Creates a subdirectory.
    #[must_use]
    pub fn subdirectory(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
        path
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.join(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }

    /// Creates a named pipe.
    pub fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        process::run(Command::new("mkfifo").arg(&path));
        path
    }

    /// Copies an executable or a library. Every user may run the copy.
    ///
    /// Another process makes the copy. If this process had the copy open for writing, a child that another test starts
    /// could inherit the descriptor. Then running the copy would fail with `ETXTBSY` until the child exits.
    pub fn copy(&self, from: impl AsRef<OsStr>, name: &str) -> PathBuf {
        let path = self.join(name);
        process::run(Command::new("install").args(["-m", "755"]).arg(from).arg(&path));
        path
    }

    /// Writes an executable script.
    pub fn script(&self, name: &str, content: &str) -> PathBuf {
        let text = self.write(&format!("{name}.text"), content.as_bytes());
        self.copy(text, name)
    }

    /// Compiles a C source.
    pub fn compile(&self, compiler: &str, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let source = self.write(&format!("{name}.c"), source.as_bytes());
        let path = self.join(name);
        process::run(Command::new(compiler).arg("-o").arg(&path).arg(source).args(options));
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
        // A failed test must not panic again. The files can stay in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}
