//! Memory cgroups with a limit, of version 1 or 2.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::cgroup::Cgroup;
use crate::mounts;
use crate::process::{self, TIMEOUT};
use crate::scratch::Scratch;

/// A memory cgroup with a limit.
pub struct MemoryCgroup {
    // This field is dropped before the hierarchy: a hierarchy with cgroups cannot be unmounted.
    cgroup: Cgroup,
    version: Version,
    _hierarchy: Option<MountedHierarchy>,
}

/// Cgroup version of the hierarchy with the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Version 1, with no reclaim counters in `memory.stat`.
    One,
    /// Version 2, with reclaim counters in `memory.stat`.
    Two,
}

/// A mounted hierarchy of version 2. Dropping it unmounts the hierarchy.
struct MountedHierarchy(Scratch);

impl MountedHierarchy {
    fn mount() -> Self {
        let scratch = Scratch::new();
        process::run(Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&*scratch));
        Self(scratch)
    }
}

impl Drop for MountedHierarchy {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&*self.0).status();
    }
}

impl MemoryCgroup {
    /// Creates a cgroup with `bytes` of memory and no swap.
    #[must_use]
    pub fn with_memory(bytes: u64) -> Self {
        let cgroup = Self::with_memory_and_swap(bytes);
        // Swap accounting is optional in the kernel.
        let _ = match cgroup.version {
            Version::One => fs::write(cgroup.path().join("memory.memsw.limit_in_bytes"), bytes.to_string()),
            Version::Two => fs::write(cgroup.path().join("memory.swap.max"), "0"),
        };
        cgroup
    }

    /// Creates a cgroup with `bytes` of memory and unlimited swap.
    #[must_use]
    pub fn with_memory_and_swap(bytes: u64) -> Self {
        let (root, version, hierarchy) = hierarchy();
        if version == Version::Two {
            fs::write(root.join("cgroup.subtree_control"), "+memory").expect("the memory controller can be delegated");
        }
        let cgroup = Cgroup::create_in(&root);
        let group = Self { cgroup, version, _hierarchy: hierarchy };
        group.set_memory(bytes);
        group
    }

    /// Changes the limit of the cgroup. Pages above the limit are reclaimed.
    pub fn set_memory(&self, bytes: u64) {
        match self.version {
            // The kernel gives up if it finds no page to reclaim for a while
            // (`mem_cgroup_resize_max`, mm/memcontrol-v1.c).
            Version::One => {
                self.write_while_busy("memory.limit_in_bytes", &bytes.to_string(), Instant::now() + TIMEOUT);
            }
            Version::Two => self.write("memory.max", &bytes.to_string()),
        }
    }

    /// Adds a process that the kernel does not kill to free memory: allocations fail.
    pub fn add_protected_process(&self, pid: u32) {
        match self.version {
            Version::One => self.write("memory.oom_control", "1"),
            Version::Two => {
                fs::write(format!("/proc/{pid}/oom_score_adj"), "-1000").expect("root can protect a process");
            }
        }
        self.cgroup.add_process(pid);
    }

    /// Creates a child without a limit of its own.
    #[must_use]
    pub fn child(&self) -> Cgroup {
        if self.version == Version::Two {
            self.write("cgroup.subtree_control", "+memory");
        }
        Cgroup::create_in(self.path())
    }

    /// Returns the ID of the cgroup, which is the inode of its directory.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.path().metadata().expect("the cgroup exists").ino()
    }

    /// Returns the number of refaulted pages of this cgroup and its descendants; `None` if the kernel does not count
    /// them.
    #[must_use]
    pub fn refaults(&self) -> Option<u64> {
        let prefix = match self.version {
            Version::One => "total_workingset_refault_",
            Version::Two => "workingset_refault_",
        };
        let text = fs::read_to_string(self.path().join("memory.stat")).ok()?;
        let counters =
            text.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once(' ')?.1.parse::<u64>().ok());
        counters.reduce(|sum, counter| sum + counter)
    }

    /// Returns true if the kernel reports PSI for the cgroup.
    #[must_use]
    pub fn has_pressure(&self) -> bool {
        fs::read_to_string(self.path().join("memory.pressure")).is_ok()
    }

    /// Moves a process to the root of the hierarchy.
    pub fn move_to_root(&self, pid: u32) {
        let root = self.path().ancestors().filter(|folder| folder.join("cgroup.procs").exists()).last();
        let path = root.expect("the cgroup is in a hierarchy").join("cgroup.procs");
        fs::write(&path, pid.to_string())
            .unwrap_or_else(|error| panic!("cannot write {pid} to {}: {error}", path.display()));
    }

    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the number of processes of the cgroup that the OOM killer has killed.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.path().join(file)).expect("the cgroup has this file");
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        kills.unwrap_or_else(|| panic!("oom_kill is not in {file}:\n{text}"))
    }

    /// Returns a command that runs another command in this cgroup.
    #[must_use]
    pub fn enter(&self) -> [String; 4] {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.path().display());
        ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
    }

    /// Returns a counter in the `memory.stat` of the cgroup.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.path().join("memory.stat")).expect("the cgroup has a memory.stat");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not in memory.stat:\n{text}"))
    }
}

impl Deref for MemoryCgroup {
    type Target = Cgroup;

    fn deref(&self) -> &Cgroup {
        &self.cgroup
    }
}

/// Returns the hierarchy with the memory controller. Mounts version 2 if neither version is mounted.
fn hierarchy() -> (PathBuf, Version, Option<MountedHierarchy>) {
    let mounts = mounts::list();
    if let Some(mount) = mounts.iter().find(|mount| mount.fs_type == "cgroup" && mount.has_option("memory")) {
        return (mount.path.clone(), Version::One, None);
    }
    if let Some(mount) = mounts.iter().find(|mount| mount.fs_type == "cgroup2" && has_memory(&mount.path)) {
        return (mount.path.clone(), Version::Two, None);
    }
    let mounted = MountedHierarchy::mount();
    assert!(has_memory(&mounted.0), "no cgroup hierarchy has the memory controller");
    (mounted.0.to_path_buf(), Version::Two, Some(mounted))
}

fn has_memory(hierarchy: &Path) -> bool {
    let controllers = fs::read_to_string(hierarchy.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "memory")
}
