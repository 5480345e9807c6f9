//! Control groups, for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::mounts;
use crate::process::PATIENCE;

/// A control group that goes when this is dropped.
pub struct Group(PathBuf);

impl Group {
    /// Makes one of version 2, of nobody.
    ///
    /// # Panics
    ///
    /// Without root, or where that version is not mounted.
    #[must_use]
    pub fn make() -> Self {
        let hierarchy = mounts::all().into_iter().find(|mount| mount.kind == "cgroup2");
        Self::within(&hierarchy.expect("control groups (version 2) are mounted").point)
    }

    /// Makes one below another, which may be the root of a hierarchy.
    ///
    /// # Panics
    ///
    /// If it can't be made.
    #[must_use]
    pub fn within(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("memtrace-tests-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        fs::create_dir(&path).expect("root may make a group");
        Self(path)
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Puts a process into it.
    ///
    /// # Panics
    ///
    /// If it can't be.
    pub fn take(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string());
    }

    /// Writes to one of its files.
    ///
    /// # Panics
    ///
    /// If that is refused.
    pub fn write(&self, file: &str, value: &str) {
        let path = self.0.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{value} to {}: {error}", path.display()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever is in it is a victim that a failed test has left behind, and is being killed.
        let until = Instant::now() + PATIENCE;
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
