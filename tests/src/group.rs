//! Control groups, for a while.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups (version 2) are mounted.
fn mounted() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts are listed");
    // What is mounted, where, as what.
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    PathBuf::from(mounts.find(|mount| mount[2] == "cgroup2").expect("control groups (version 2) are mounted")[1])
}

/// A control group that goes when this is dropped.
pub struct Group(PathBuf);

impl Group {
    /// Makes one, of nobody, whose name begins so.
    ///
    /// # Panics
    ///
    /// Without root.
    #[must_use]
    pub fn make(name: &str) -> Self {
        let path = mounted().join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("root may make a group");
        Self(path)
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
