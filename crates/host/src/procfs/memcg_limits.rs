//! Memory usage and limits of a process's cgroup, version 1 or 2.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use memtrace_model::{Bytes, CgroupLimit, CgroupMemory, Pid};

use super::memcg_counters::{self, CounterFiles, bytes};
use super::pressure;
use crate::procfs::kernel_files;
use crate::procfs::process::proc_path;

/// Returns the memory of the cgroup of `pid`; `None` if no memory controller is mounted or the process has exited.
#[must_use]
pub fn cgroup_memory(pid: Pid) -> Option<CgroupMemory> {
    let (files, mount, path) = group_of(pid)?;
    of_group(files, &mount, Path::new(&path))
}

/// Returns the memory of the cgroup at `path`: its directory, or its path such as `system.slice`. Returns `None` if the
/// hierarchy with the memory controller has no such cgroup, and for the root of version 2.
#[must_use]
pub fn memory_of_cgroup(path: &Path) -> Option<CgroupMemory> {
    let own = kernel_files::read_to_string("/proc/self/cgroup").ok()?;
    let (files, _) = controller(&own)?;
    let mounts = kernel_files::read("/proc/self/mountinfo").ok()?;
    let (kind, option) = files.mounted_as;
    // The hierarchy may be mounted at several places.
    let as_directory = find_mounts(&mounts, kind, option).find_map(|mount| Some((mount.name(path)?, mount)));
    let (name, mount) = match as_directory {
        Some(found) => found,
        None => (Path::new("/").join(path), mount_of(&mounts, files)?),
    };
    of_group(files, &mount, &name)
}

/// Returns the lowest `memory.high` of the cgroup of `pid` and its ancestors; `None` if none of them has such a limit.
#[must_use]
pub fn memory_high(pid: Pid) -> Option<Bytes> {
    let (files, mount, path) = group_of(pid)?;
    let directory = mount.directory(Path::new(&path))?;
    let groups = directory.ancestors().take_while(|group| group.starts_with(&mount.point));
    groups.filter_map(|group| limit(&group.join(files.high?))).min()
}

/// Returns the hierarchy with the memory controller, and the path of the cgroup of `pid` in it.
fn group_of(pid: Pid) -> Option<(&'static Files, Mount, String)> {
    let (files, path) = group_path(pid)?;
    let mounts = kernel_files::read("/proc/self/mountinfo").ok()?;
    Some((files, mount_of(&mounts, files)?, path))
}

/// Returns the version with the memory controller, and the path of the cgroup of `pid`; `None` if the process has exited.
pub(super) fn group_path(pid: Pid) -> Option<(&'static Files, String)> {
    let groups = kernel_files::read_to_string(proc_path(pid, "cgroup")).ok()?;
    controller(&groups).map(|(files, path)| (files, path.to_owned()))
}

/// File and counter names of a cgroup version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub current: &'static str,
    pub limit: &'static str,
    /// File with the usage above which a cgroup is throttled and reclaimed.
    pub high: Option<&'static str>,
    /// File that counts the attempts to exceed a limit of the cgroup itself, and the names of its counters.
    reached: (&'static str, &'static [&'static str]),
    /// File with the hard limit of the memory with its swap.
    limit_with_swap: Option<&'static str>,
    /// File with the highest usage.
    peak: &'static str,
    counters: CounterFiles,
    /// Prefix of the counters of workingset refaults.
    pub refaults: &'static str,
    /// File system type, and mount option of the memory controller.
    mounted_as: (&'static str, Option<&'static str>),
}

/// Names in version 2 (Documentation/admin-guide/cgroup-v2.rst, "Memory").
pub(super) const VERSION_2: Files = Files {
    current: "memory.current",
    limit: "memory.max",
    high: Some("memory.high"),
    reached: ("memory.events.local", &["high", "max"]),
    limit_with_swap: None,
    peak: "memory.peak",
    counters: memcg_counters::VERSION_2,
    refaults: "workingset_refault_",
    mounted_as: ("cgroup2", None),
};

/// Names in version 1 (Documentation/admin-guide/cgroup-v1/memory.rst). Counters that include descendants begin with
/// `total_`.
pub(super) const VERSION_1: Files = Files {
    current: "memory.usage_in_bytes",
    limit: "memory.limit_in_bytes",
    high: None,
    reached: ("memory.failcnt", &[]),
    limit_with_swap: Some("memory.memsw.limit_in_bytes"),
    peak: "memory.max_usage_in_bytes",
    counters: memcg_counters::VERSION_1,
    refaults: "total_workingset_refault_",
    mounted_as: ("cgroup", Some("memory")),
};

/// Returns the version with the memory controller, and the cgroup's path. A controller is in a single hierarchy. A line
/// of version 1 names its controllers (`HIERARCHY:CONTROLLERS:PATH`, cgroups(7)).
pub(super) fn controller(groups: &str) -> Option<(&'static Files, &str)> {
    let lines = || {
        groups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
    };
    let first = lines().find(|(_, controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let (files, (_, _, path)) = match first {
        Some(line) => (&VERSION_1, line),
        None => (&VERSION_2, lines().find(|(number, controllers, _)| (*number, *controllers) == ("0", ""))?),
    };
    // The kernel appends ` (deleted)` to the path of a removed cgroup (`proc_cgroup_show`, kernel/cgroup/cgroup.c).
    Some((files, path.strip_suffix(" (deleted)").unwrap_or(path)))
}

/// Finds the mount of the hierarchy with the memory controller.
pub(super) fn mount_of(mounts: &[u8], files: &Files) -> Option<Mount> {
    let (kind, option) = files.mounted_as;
    find_mount(mounts, kind, option)
}

/// Finds the first mount of a file system type with a super option.
pub(super) fn find_mount(mounts: &[u8], kind: &str, option: Option<&str>) -> Option<Mount> {
    find_mounts(mounts, kind, option).next()
}

/// Finds mounts by their file system type and a super option. A line is
/// `ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS... - TYPE SOURCE SUPER_OPTIONS` (proc_pid_mountinfo(5)).
fn find_mounts(mounts: &[u8], kind: &str, option: Option<&str>) -> impl Iterator<Item = Mount> {
    mounts.split(|&byte| byte == b'\n').filter_map(move |line| {
        let words: Vec<_> = line.split(|&byte| byte == b' ').collect();
        let separator = words.iter().position(|word| *word == b"-")?;
        let options = words.get(separator + 3)?;
        let has = |option: &str| options.split(|&byte| byte == b',').any(|word| word == option.as_bytes());
        (*words.get(separator + 1)? == kind.as_bytes() && option.is_none_or(has)).then_some(())?;
        let path = |at: usize| Some(PathBuf::from(OsString::from_vec(words.get(at)?.to_vec())));
        Some(Mount { root: path(3)?, point: path(4)? })
    })
}

/// Mount of a cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Cgroup at the mount point.
    pub root: PathBuf,
    pub point: PathBuf,
}

impl Mount {
    /// Returns the directory of the cgroup at `path`; `None` if it is outside of the mount.
    pub(super) fn directory(&self, path: &Path) -> Option<PathBuf> {
        // The path of a cgroup outside of the root begins with `..`, as for a process outside of the container.
        let below = path.strip_prefix(&self.root).ok().filter(|below| !below.starts_with(".."))?;
        Some(self.point.join(below))
    }

    /// Returns the cgroup path of a directory.
    pub(super) fn name(&self, directory: &Path) -> Option<PathBuf> {
        Some(self.root.join(directory.strip_prefix(&self.point).ok()?))
    }
}

fn of_group(files: &Files, mount: &Mount, path: &Path) -> Option<CgroupMemory> {
    let directory = mount.directory(path)?;
    // The root of version 2 has no `memory.current` and no limits.
    let current = bytes(&directory.join(files.current))?;
    // Returns the limit in `file` with the least headroom, of the group or an ancestor.
    let least = |file: &str| {
        let groups = directory.ancestors().take_while(|group| group.starts_with(&mount.point));
        let limits = groups.filter_map(|group| {
            let most = limit(&group.join(file))?;
            let path = mount.name(group)?.to_string_lossy().into_owned();
            Some(CgroupLimit { path, most, current: bytes(&group.join(files.current))? })
        });
        limits.min_by_key(|limit| limit.most.0.saturating_sub(limit.current.0))
    };
    let mut events = files.counters.events(&directory);
    events.max = events.max.or_else(|| files.reached(&directory));
    Some(CgroupMemory {
        path: path.to_string_lossy().into_owned(),
        current,
        peak: bytes(&directory.join(files.peak)),
        limit: least(files.limit),
        high: files.high.and_then(least),
        counters: files.counters.read(&directory),
        events,
        pressure: pressure::read(&directory.join("memory.pressure")),
    })
}

impl Files {
    /// Returns the number of attempts so far to exceed a limit of the cgroup at `directory`; `None` if the kernel does not
    /// count them.
    pub(super) fn reached(&self, directory: &Path) -> Option<u64> {
        let (file, names) = self.reached;
        let limit = |file: &str| limit(&directory.join(file));
        // The kernel charges memory with its swap first (`try_charge_memcg`, mm/memcontrol.c), and newer kernels do not count the
        // failures of this charge (`track_failcnt`, include/linux/page_counter.h). So if the limit with swap is not higher, the
        // attempts are not counted. Docker sets both limits to the same number.
        let with_swap = self.limit_with_swap.and_then(limit);
        if with_swap.is_some_and(|with_swap| limit(self.limit).is_none_or(|limit| with_swap <= limit)) {
            return None;
        }
        let text = kernel_files::read_to_string(directory.join(file)).ok()?;
        if names.is_empty() {
            return text.trim().parse().ok();
        }
        let numbers = text.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| names.contains(name));
        numbers.filter_map(|(_, number)| number.trim().parse::<u64>().ok()).reduce(u64::saturating_add)
    }
}

/// Reads a limit; returns `None` if no limit is set.
pub(super) fn limit(path: &Path) -> Option<Bytes> {
    bytes(path).filter(|limit| limit.0 < NO_LIMIT)
}

/// Bound in bytes for real limits: an exbibyte. Without a limit, version 1 shows its maximum (`PAGE_COUNTER_MAX`).
const NO_LIMIT: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use std::fs;

    use harness::Scratch;
    use memtrace_model::{CgroupEvents, MemoryCounters};

    use super::*;

    #[test]
    fn the_memory_controller_is_in_version_1_if_listed_there() {
        let mixed = "4:memory:/jobs/a\n2:cpu,cpuacct:/x\n0::/init.scope\n";
        assert_eq!(controller(mixed), Some((&VERSION_1, "/jobs/a")));
        assert_eq!(controller("0::/a:b/c (deleted)\n"), Some((&VERSION_2, "/a:b/c")));
        assert_eq!(controller("1:name=systemd:/\n"), None);
        assert_eq!(controller(""), None);
    }

    #[test]
    fn the_hierarchy_is_found_among_the_mounts() {
        let mounts = b"25 1 0:22 / /sys rw - sysfs sysfs rw\n\
            31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 30 0:28 /docker/7 /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n\
            33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let mount = |root: &str, point: &str| Some(Mount { root: root.into(), point: point.into() });
        assert_eq!(mount_of(mounts, &VERSION_1), mount("/docker/7", "/sys/fs/cgroup/memory"));
        assert_eq!(mount_of(mounts, &VERSION_2), mount("/", "/sys/fs/cgroup/unified"));
        assert_eq!(mount_of(b"32 30 -\n- cgroup2\n", &VERSION_2), None);
    }

    fn group(scratch: &Scratch, path: &str, files: &[(&str, &str)]) {
        let directory = scratch.path("root").join(path);
        fs::create_dir_all(&directory).unwrap();
        for (name, content) in files {
            fs::write(directory.join(name), content).unwrap();
        }
    }

    #[test]
    fn the_limit_with_the_least_headroom_counts() {
        let scratch = Scratch::new();
        group(&scratch, "", &[]);
        group(&scratch, "a", &[("memory.current", "900\n"), ("memory.max", "1000\n")]);
        group(
            &scratch,
            "a/b",
            &[
                ("memory.current", "300\n"),
                ("memory.max", "500\n"),
                ("memory.high", "310\n"),
                ("memory.peak", "444\n"),
                ("memory.stat", "anon 200\nanon_thp 7\nfile 90\n"),
                ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"),
            ],
        );
        let mount = Mount { root: "/".into(), point: scratch.path("root") };
        let memory = of_group(&VERSION_2, &mount, Path::new("/a/b")).unwrap();
        assert_eq!((memory.path.as_str(), memory.current), ("/a/b", Bytes(300)));
        assert_eq!(memory.limit, Some(CgroupLimit { path: "/a".into(), most: Bytes(1000), current: Bytes(900) }));
        assert_eq!((memory.counters.anonymous, memory.counters.file), (Some(Bytes(200)), Some(Bytes(90))));
        assert_eq!(memory.high, Some(CgroupLimit { path: "/a/b".into(), most: Bytes(310), current: Bytes(300) }));
        assert_eq!(memory.peak, Some(Bytes(444)));
        assert_eq!(memory.pressure.unwrap().some.total.as_micros(), 9);
    }

    #[test]
    fn missing_limits_and_cgroups_are_none() {
        let scratch = Scratch::new();
        group(&scratch, "a", &[("memory.current", "300\n"), ("memory.max", "max\n")]);
        let numbers = [("memory.usage_in_bytes", "7\n"), ("memory.limit_in_bytes", "9223372036854771712\n")];
        group(&scratch, "old", &numbers);
        group(&scratch, "old", &[("memory.failcnt", "44\n"), ("memory.oom_control", "under_oom 0\noom_kill 3\n")]);
        let mount = Mount { root: "/".into(), point: scratch.path("root") };
        let read = |files, path: &str| of_group(files, &mount, Path::new(path));
        let memory = read(&VERSION_2, "/a").unwrap();
        assert_eq!((memory.limit, memory.high, memory.peak, memory.pressure), (None, None, None, None));
        assert_eq!((memory.counters, memory.events), (MemoryCounters::default(), CgroupEvents::default()));
        let memory = read(&VERSION_1, "/old").unwrap();
        assert_eq!((memory.current, memory.limit), (Bytes(7), None));
        assert_eq!((memory.events.max, memory.events.oom_kill), (Some(44), Some(3)));
        assert_eq!(read(&VERSION_2, "/gone"), None);
        assert_eq!(read(&VERSION_2, "/../other"), None);
    }

    #[test]
    fn a_missing_process_has_no_cgroup() {
        assert_eq!(cgroup_memory(Pid(u32::MAX)), None);
        assert_eq!(memory_of_cgroup(Path::new("no-such.slice")), None);
        assert_eq!(memory_of_cgroup(Path::new("../..")), None);
    }
}
