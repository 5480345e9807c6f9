//! Temporary cgroups.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::mounts;
use crate::process::TIMEOUT;

/// A cgroup. Dropping it removes the cgroup.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a top-level cgroup of version 2, which must be mounted.
    #[expect(clippy::new_without_default, reason = "it creates a directory")]
    #[must_use]
    pub fn new() -> Self {
        let hierarchy = mounts::list().into_iter().find(|mount| mount.fs_type == "cgroup2");
        Self::create_in(&hierarchy.expect("cgroup version 2 is mounted").path)
    }

    /// Creates a child of the cgroup at `parent`.
    #[must_use]
    pub fn create_in(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("memtrace-tests-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        fs::create_dir(&path).expect("root can create a cgroup");
        Self(path)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves a process into the cgroup.
    pub fn add_process(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string());
    }

    /// Writes to an interface file of the cgroup.
    pub fn write(&self, file: &str, value: &str) {
        self.write_while_busy(file, value, Instant::now());
    }

    /// Writes to an interface file of the cgroup. While the kernel answers that the group is busy, tries again until
    /// the deadline.
    pub(crate) fn write_while_busy(&self, file: &str, value: &str, deadline: Instant) {
        let path = self.0.join(file);
        loop {
            match fs::write(&path, value) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    thread::yield_now();
                }
                result => {
                    return result
                        .unwrap_or_else(|error| panic!("cannot write {value} to {}: {error}", path.display()));
                }
            }
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A failed test may have left a victim in the cgroup. The victim is being killed.
        let deadline = Instant::now() + TIMEOUT;
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
