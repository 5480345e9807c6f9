//! Control groups with little memory, of either version.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::group::Group;
use crate::mounts;
use crate::process;
use crate::scratch::Scratch;

/// A control group that may have so much memory.
pub struct Cgroup {
    // Before the hierarchy, which can be unmounted only when it is gone.
    group: Group,
    version: Version,
    _mounted: Option<Mounted>,
}

/// Which version of control groups has the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.stat` does not tell of reclaim.
    One,
    /// It does.
    Two,
}

/// A hierarchy of version 2, mounted as long as this lives.
struct Mounted(Scratch);

impl Mounted {
    fn mount() -> Self {
        let scratch = Scratch::new();
        process::run(Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&*scratch));
        Self(scratch)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&*self.0).status();
    }
}

impl Cgroup {
    /// Makes one that may have `bytes` of memory, and no swap beside.
    ///
    /// # Panics
    ///
    /// If there is no memory controller, or it can't be made.
    #[must_use]
    pub fn with_memory(bytes: u64) -> Self {
        let group = Self::with_memory_and_swap(bytes);
        // Not every kernel keeps books of swap.
        let _ = match group.version {
            Version::One => fs::write(group.path().join("memory.memsw.limit_in_bytes"), bytes.to_string()),
            Version::Two => fs::write(group.path().join("memory.swap.max"), "0"),
        };
        group
    }

    /// Makes one that may have `bytes` of memory, and as much swap as there is.
    ///
    /// # Panics
    ///
    /// As [`Self::with_memory`].
    #[must_use]
    pub fn with_memory_and_swap(bytes: u64) -> Self {
        let (root, version, mounted) = hierarchy();
        if version == Version::Two {
            fs::write(root.join("cgroup.subtree_control"), "+memory")
                .expect("the memory controller can be handed down");
        }
        let group = Group::within(&root);
        match version {
            Version::One => group.write("memory.limit_in_bytes", &bytes.to_string()),
            Version::Two => group.write("memory.max", &bytes.to_string()),
        }
        Self { group, version, _mounted: mounted }
    }

    /// One within it, without a limit of its own.
    ///
    /// # Panics
    ///
    /// If it can't be made.
    #[must_use]
    pub fn within(&self) -> Group {
        if self.version == Version::Two {
            self.write("cgroup.subtree_control", "+memory");
        }
        Group::within(self.path())
    }

    /// Its number: that of its folder.
    ///
    /// # Panics
    ///
    /// If it isn't there.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.path().metadata().expect("it is there").ino()
    }

    /// Pages that came back to it, and to those within it, soon after they were freed; `None` where the kernel doesn't tell.
    #[must_use]
    pub fn refaults(&self) -> Option<u64> {
        let start = match self.version {
            Version::One => "total_workingset_refault_",
            Version::Two => "workingset_refault_",
        };
        let text = fs::read_to_string(self.path().join("memory.stat")).ok()?;
        let counters = text.lines().filter_map(|line| line.strip_prefix(start)?.split_once(' ')?.1.parse::<u64>().ok());
        counters.reduce(|sum, counter| sum + counter)
    }

    /// Whether the kernel tells how long its tasks wait for memory.
    #[must_use]
    pub fn tells_pressure(&self) -> bool {
        fs::read_to_string(self.path().join("memory.pressure")).is_ok()
    }

    /// Puts a process where all are that are in no group.
    ///
    /// # Panics
    ///
    /// If it can't be.
    pub fn release(&self, pid: u32) {
        let root = self.path().ancestors().filter(|folder| folder.join("cgroup.procs").exists()).last();
        let path = root.expect("it is within one").join("cgroup.procs");
        fs::write(&path, pid.to_string()).unwrap_or_else(|error| panic!("{pid} to {}: {error}", path.display()));
    }

    /// Which version it is of.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// A number of its `memory.stat`.
    ///
    /// # Panics
    ///
    /// If it isn't there.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.path().join("memory.stat")).expect("it has statistics");
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        found.unwrap_or_else(|| panic!("{name} is not in memory.stat:\n{text}"))
    }
}

impl Deref for Cgroup {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

/// Where the memory controller's hierarchy is mounted; mounted here where it is nowhere.
fn hierarchy() -> (PathBuf, Version, Option<Mounted>) {
    let mounts = mounts::all();
    if let Some(mount) = mounts.iter().find(|mount| mount.kind == "cgroup" && mount.has_option("memory")) {
        return (mount.point.clone(), Version::One, None);
    }
    if let Some(mount) = mounts.iter().find(|mount| mount.kind == "cgroup2" && has_memory(&mount.point)) {
        return (mount.point.clone(), Version::Two, None);
    }
    let mounted = Mounted::mount();
    assert!(has_memory(&mounted.0), "nobody has the memory controller");
    (mounted.0.to_path_buf(), Version::Two, Some(mounted))
}

fn has_memory(hierarchy: &Path) -> bool {
    let controllers = fs::read_to_string(hierarchy.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "memory")
}
