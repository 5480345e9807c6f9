//! The memory of a process' control group, of version 2 or 1.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::pressure;
use crate::model::{Bytes, CgroupLimit, CgroupMemory, Pid};
use crate::procfs::process::proc_path;

/// The memory of the control group that `pid` is in; `None` where no memory controller is mounted or the process has
/// ended.
#[must_use]
pub(crate) fn cgroup_memory(pid: Pid) -> Option<CgroupMemory> {
    let groups = fs::read_to_string(proc_path(pid, "cgroup")).ok()?;
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let (files, path) = controller(&groups)?;
    let mount = mount_of(&mounts, files)?;
    of_group(files, &mount, path)
}

/// What the files of a version are called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) current: &'static str,
    pub(crate) limit: &'static str,
    /// From where on a group is slowed down, with its pages looked for.
    pub(crate) high: Option<&'static str>,
    anonymous: &'static str,
    file: &'static str,
    /// How the counters of pages that came back soon after they were freed begin.
    pub(crate) refaults: &'static str,
    /// The file system's type, and the option that its mount has.
    mounted_as: (&'static str, Option<&'static str>),
}

/// Documentation/admin-guide/cgroup-v2.rst, "Memory".
pub(crate) const VERSION_2: Files = Files {
    current: "memory.current",
    limit: "memory.max",
    high: Some("memory.high"),
    anonymous: "anon",
    file: "file",
    refaults: "workingset_refault_",
    mounted_as: ("cgroup2", None),
};

/// Documentation/admin-guide/cgroup-v1/memory.rst; the sums of a hierarchy have `total_` before their names.
pub(crate) const VERSION_1: Files = Files {
    current: "memory.usage_in_bytes",
    limit: "memory.limit_in_bytes",
    high: None,
    anonymous: "total_rss",
    file: "total_cache",
    refaults: "total_workingset_refault_",
    mounted_as: ("cgroup", Some("memory")),
};

/// Which version has the memory controller, and the group's path in it. A controller is in one hierarchy alone; one of
/// version 1 names it (`HIERARCHY:CONTROLLERS:PATH`, cgroups(7)).
pub(crate) fn controller(groups: &str) -> Option<(&'static Files, &str)> {
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
    // What the kernel appends to the path of a group that was removed (`proc_cgroup_show`, kernel/cgroup/cgroup.c).
    Some((files, path.strip_suffix(" (deleted)").unwrap_or(path)))
}

/// Where the hierarchy is mounted, and which of its groups lies there: `ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS... -
/// TYPE SOURCE SUPER_OPTIONS` (proc_pid_mountinfo(5)).
pub(crate) fn mount_of(mounts: &[u8], files: &Files) -> Option<Mount> {
    let (kind, option) = files.mounted_as;
    mounts.split(|&byte| byte == b'\n').find_map(|line| {
        let words: Vec<_> = line.split(|&byte| byte == b' ').collect();
        let behind = words.iter().position(|word| *word == b"-")?;
        let options = words.get(behind + 3)?;
        let has = |option: &str| options.split(|&byte| byte == b',').any(|word| word == option.as_bytes());
        (*words.get(behind + 1)? == kind.as_bytes() && option.is_none_or(has)).then_some(())?;
        let path = |at: usize| Some(PathBuf::from(OsString::from_vec(words.get(at)?.to_vec())));
        Some(Mount { root: path(3)?, point: path(4)? })
    })
}

/// Where a hierarchy is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The group that lies there.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
}

fn of_group(files: &Files, mount: &Mount, path: &str) -> Option<CgroupMemory> {
    // A group above the mount's own, as one outside of the container has, has a path that leads out of it.
    let below = Path::new(path).strip_prefix(&mount.root).ok().filter(|below| !below.starts_with(".."))?;
    let folder = mount.point.join(below);
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    // The root of version 2 has no `memory.current`: nothing is limited there.
    let current = bytes(&folder.join(files.current))?;
    let groups = folder.ancestors().take_while(|group| group.starts_with(&mount.point));
    let limits = groups.filter_map(|group| {
        let most = limit(&group.join(files.limit))?;
        let name = group.strip_prefix(&mount.point).ok()?;
        let path = mount.root.join(name).to_string_lossy().into_owned();
        Some(CgroupLimit { path, most, current: bytes(&group.join(files.current))? })
    });
    Some(CgroupMemory {
        path: path.to_owned(),
        current,
        limit: limits.min_by_key(|limit| limit.most.0.saturating_sub(limit.current.0)),
        anonymous: field(&stat, files.anonymous),
        file: field(&stat, files.file),
        pressure: pressure::read(&folder.join("memory.pressure")),
    })
}

/// A limit; `None` where there is none.
pub(crate) fn limit(path: &Path) -> Option<Bytes> {
    bytes(path).filter(|limit| limit.0 < NO_LIMIT)
}

/// Version 1 writes the most that it can count where there is no limit (`PAGE_COUNTER_MAX`); nobody has an exbibyte.
const NO_LIMIT: u64 = 1 << 60;

/// A file of one number; `None` where it says `max`.
pub(crate) fn bytes(path: &Path) -> Option<Bytes> {
    fs::read_to_string(path).ok()?.trim().parse().ok().map(Bytes)
}

/// `NAME NUMBER`, a line each.
fn field(stat: &str, name: &str) -> Option<Bytes> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok()).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_controller_is_where_it_is_named_and_else_in_version_2() {
        let mixed = "4:memory:/jobs/a\n2:cpu,cpuacct:/x\n0::/init.scope\n";
        assert_eq!(controller(mixed), Some((&VERSION_1, "/jobs/a")));
        assert_eq!(controller("0::/a:b/c (deleted)\n"), Some((&VERSION_2, "/a:b/c")));
        assert_eq!(controller("1:name=systemd:/\n"), None);
        assert_eq!(controller(""), None);
    }

    #[test]
    fn a_hierarchy_is_found_among_the_mounts() {
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
        let folder = scratch.path("root").join(path);
        fs::create_dir_all(&folder).unwrap();
        for (name, content) in files {
            fs::write(folder.join(name), content).unwrap();
        }
    }

    #[test]
    fn the_limit_that_is_reached_first_counts_whosever_it_is() {
        let scratch = Scratch::new();
        group(&scratch, "", &[]);
        group(&scratch, "a", &[("memory.current", "900\n"), ("memory.max", "1000\n")]);
        group(
            &scratch,
            "a/b",
            &[
                ("memory.current", "300\n"),
                ("memory.max", "500\n"),
                ("memory.stat", "anon 200\nanon_thp 7\nfile 90\n"),
                ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"),
            ],
        );
        let mount = Mount { root: "/".into(), point: scratch.path("root") };
        let memory = of_group(&VERSION_2, &mount, "/a/b").unwrap();
        assert_eq!((memory.path.as_str(), memory.current), ("/a/b", Bytes(300)));
        assert_eq!(memory.limit, Some(CgroupLimit { path: "/a".into(), most: Bytes(1000), current: Bytes(900) }));
        assert_eq!((memory.anonymous, memory.file), (Some(Bytes(200)), Some(Bytes(90))));
        assert_eq!(memory.pressure.unwrap().some.total.as_micros(), 9);
    }

    #[test]
    fn no_limit_is_none_and_no_group_is_nothing() {
        let scratch = Scratch::new();
        group(&scratch, "a", &[("memory.current", "300\n"), ("memory.max", "max\n")]);
        let numbers = [("memory.usage_in_bytes", "7\n"), ("memory.limit_in_bytes", "9223372036854771712\n")];
        group(&scratch, "old", &numbers);
        let mount = Mount { root: "/".into(), point: scratch.path("root") };
        let memory = of_group(&VERSION_2, &mount, "/a").unwrap();
        assert_eq!((memory.limit, memory.anonymous, memory.pressure), (None, None, None));
        let memory = of_group(&VERSION_1, &mount, "/old").unwrap();
        assert_eq!((memory.current, memory.limit), (Bytes(7), None));
        assert_eq!(of_group(&VERSION_2, &mount, "/gone"), None);
        assert_eq!(of_group(&VERSION_2, &mount, "/../other"), None);
    }

    #[test]
    fn nobody_is_in_no_group() {
        assert_eq!(cgroup_memory(Pid(u32::MAX)), None);
    }
}
