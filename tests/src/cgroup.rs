//! Control groups with little memory, of either version.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{self, PATIENCE};
use crate::scratch::Scratch;

/// A control group that may have so much memory, removed when it is dropped.
pub struct Cgroup {
    folder: PathBuf,
    version: Version,
    /// Where version 2 was mounted for it alone.
    mounted: Option<Scratch>,
}

/// Which version of control groups has the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.stat` does not tell of reclaim.
    One,
    /// It does.
    Two,
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
            Version::One => fs::write(group.folder.join("memory.memsw.limit_in_bytes"), bytes.to_string()),
            Version::Two => fs::write(group.folder.join("memory.swap.max"), "0"),
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
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (root, version, mounted) = hierarchy();
        let name = format!("memtrace-tests-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = root.join(name);
        if version == Version::Two {
            fs::write(root.join("cgroup.subtree_control"), "+memory")
                .expect("the memory controller can be handed down");
        }
        fs::create_dir(&folder).expect("control groups can be made");
        let group = Self { folder, version, mounted };
        match version {
            Version::One => group.write("memory.limit_in_bytes", &bytes.to_string()),
            Version::Two => group.write("memory.max", &bytes.to_string()),
        }
        group
    }

    /// One within it, without a limit of its own.
    ///
    /// # Panics
    ///
    /// If it can't be made.
    #[must_use]
    pub fn within(&self) -> Self {
        if self.version == Version::Two {
            self.write("cgroup.subtree_control", "+memory");
        }
        let folder = self.folder.join("inner");
        fs::create_dir(&folder).expect("control groups can be made");
        Self { folder, version: self.version, mounted: None }
    }

    /// Its number: that of its folder.
    ///
    /// # Panics
    ///
    /// If it isn't there.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.folder.metadata().expect("it is there").ino()
    }

    /// Its name: how its path ends.
    ///
    /// # Panics
    ///
    /// Never: it was made with one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.folder.file_name().and_then(OsStr::to_str).expect("it has a name")
    }

    /// Pages that came back to it, and to those within it, soon after they were freed; `None` where the kernel doesn't tell.
    #[must_use]
    pub fn refaults(&self) -> Option<u64> {
        let start = match self.version {
            Version::One => "total_workingset_refault_",
            Version::Two => "workingset_refault_",
        };
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let counters = text.lines().filter_map(|line| line.strip_prefix(start)?.split_once(' ')?.1.parse::<u64>().ok());
        counters.reduce(|sum, counter| sum + counter)
    }

    /// Whether the kernel tells how long its tasks wait for memory.
    #[must_use]
    pub fn tells_pressure(&self) -> bool {
        fs::read_to_string(self.folder.join("memory.pressure")).is_ok()
    }

    /// Puts a process where all are that are in no group.
    ///
    /// # Panics
    ///
    /// If it can't be.
    pub fn release(&self, pid: u32) {
        let root = self.folder.ancestors().filter(|folder| folder.join("cgroup.procs").exists()).last();
        let path = root.expect("it is within one").join("cgroup.procs");
        fs::write(&path, pid.to_string()).unwrap_or_else(|error| panic!("{pid} to {}: {error}", path.display()));
    }

    /// Which version it is of.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Puts a process into it.
    ///
    /// # Panics
    ///
    /// If it can't be.
    pub fn take(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string());
    }

    /// A number of its `memory.stat`.
    ///
    /// # Panics
    ///
    /// If it isn't there.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join("memory.stat")).expect("it has statistics");
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        found.unwrap_or_else(|| panic!("{name} is not in memory.stat:\n{text}"))
    }

    fn write(&self, file: &str, value: &str) {
        let path = self.folder.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{value} to {}: {error}", path.display()));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whoever is in it is a victim that a failed test has left behind, and is being killed.
        let until = Instant::now() + PATIENCE;
        while fs::remove_dir(&self.folder).is_err() && self.folder.exists() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        if let Some(mounted) = &self.mounted {
            let _ = Command::new("umount").arg(&**mounted).status();
        }
    }
}

/// Where the memory controller's hierarchy is mounted; mounted here where it is nowhere.
fn hierarchy() -> (PathBuf, Version, Option<Scratch>) {
    let mounts = fs::read_to_string("/proc/mounts").expect("there are mounts");
    let mounted = |kind: &str, has: &dyn Fn(&Path, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, found, options, ..] = words[..] else { return None };
            (found == kind && has(Path::new(point), options)).then(|| PathBuf::from(point))
        })
    };
    if let Some(point) = mounted("cgroup", &|_, options| options.split(',').any(|option| option == "memory")) {
        return (point, Version::One, None);
    }
    let has_memory = |point: &Path| {
        let controllers = fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
        controllers.split_whitespace().any(|name| name == "memory")
    };
    if let Some(point) = mounted("cgroup2", &|point, _| has_memory(point)) {
        return (point, Version::Two, None);
    }
    let scratch = Scratch::new();
    process::run(Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&*scratch));
    assert!(has_memory(&scratch), "nobody has the memory controller");
    (scratch.to_path_buf(), Version::Two, Some(scratch))
}
