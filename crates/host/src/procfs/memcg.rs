//! Memory cgroups: the hierarchy with the memory controller, and the memory counters of each cgroup.

use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use memtrace_model::{Bytes, CgroupId, Pid, Pressure};

use super::pressure;
use crate::procfs::kernel_files;
use crate::procfs::memcg_counters::bytes;
use crate::procfs::memcg_limits as limits;
use crate::procfs::memcg_limits::{Files, Mount, VERSION_2};

/// Cgroup hierarchy with the memory controller.
#[derive(Debug)]
pub struct MemoryGroups {
    files: &'static Files,
    mount: Mount,
}

/// Memory counters of a cgroup at one point in time; `None` for counters that the cgroup does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupReading {
    /// Hard limit of the usage.
    pub limit: Option<Bytes>,
    /// Usage above which the cgroup is throttled.
    pub high: Option<Bytes>,
    /// Current usage.
    pub current: Option<Bytes>,
    /// Number of attempts so far to exceed a limit of this cgroup. In each case, the kernel reclaimed memory of the cgroup.
    /// `None` if the kernel does not count them.
    pub reached: Option<u64>,
    /// Number of workingset refaults so far.
    pub refaults: Option<u64>,
    /// Memory pressure (PSI).
    pub pressure: Option<Pressure>,
}

impl MemoryGroups {
    /// Finds the mounted hierarchy with the memory controller; returns `None` if there is none.
    #[must_use]
    pub fn find() -> Option<Self> {
        let own = kernel_files::read_to_string("/proc/self/cgroup").ok()?;
        let (files, _) = limits::controller(&own)?;
        let mount = limits::mount_of(&kernel_files::read("/proc/self/mountinfo").ok()?, files)?;
        Some(Self { files, mount })
    }

    /// Returns true for cgroup version 2.
    #[must_use]
    pub fn is_version_2(&self) -> bool {
        *self.files == VERSION_2
    }

    /// Lists all cgroups with their paths. A cgroup that is created or removed at the same time may be missing.
    #[must_use]
    pub fn all(&self) -> Vec<(CgroupId, PathBuf)> {
        let mut groups = Vec::new();
        let mut queue = vec![self.mount.point.clone()];
        if let Some(id) = fs::metadata(&self.mount.point).ok().and_then(|root| id_of(&root)) {
            groups.push((id, self.mount.root.clone()));
        }
        while let Some(directory) = queue.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = entry.path();
                    // The kernel's id of a cgroup is the inode of its directory (`kernfs_ino`, include/linux/kernfs.h).
                    groups.extend(CgroupId::of(entry.ino()).zip(self.mount.name(&path)));
                    queue.push(path);
                }
            }
        }
        groups
    }

    /// Returns the ids of a cgroup and its descendants. `path` is a directory, or a path such as `system.slice`. Returns no id
    /// if this hierarchy has no such cgroup.
    #[must_use]
    pub fn below(&self, path: &Path) -> Vec<CgroupId> {
        let name = self.mount.name(path).unwrap_or_else(|| Path::new("/").join(path));
        self.all().into_iter().filter(|(_, group)| group.starts_with(&name)).map(|(id, _)| id).collect()
    }

    /// Returns the path of the cgroup of `pid`; `None` if the process has exited.
    #[must_use]
    pub fn of(&self, pid: Pid) -> Option<PathBuf> {
        limits::group_path(pid).map(|(_, path)| PathBuf::from(path))
    }

    /// Returns true if the cgroup at `path` has a limit of its own.
    #[must_use]
    pub fn is_limited(&self, path: &Path) -> bool {
        let Some(directory) = self.mount.directory(path) else { return false };
        limits::limit(&directory.join(self.files.limit)).is_some() || self.high(&directory).is_some()
    }

    /// Reads the counters of a cgroup; returns `None` if it does not exist.
    #[must_use]
    pub fn read(&self, path: &Path) -> Option<GroupReading> {
        let (_, reading) = self.usage(path)?;
        let directory = self.mount.directory(path)?;
        let stat = kernel_files::read_to_string(directory.join("memory.stat")).unwrap_or_default();
        let (reached, refaults) = (self.files.reached(&directory), sum(&stat, self.files.refaults));
        Some(GroupReading { reached, refaults, ..reading })
    }

    /// Returns the id and the counters of a cgroup; `None` if it does not exist. Counters in `memory.stat` are left out, because
    /// the kernel takes long to compute them. The attempts to exceed a limit are left out, too.
    #[must_use]
    pub fn usage(&self, path: &Path) -> Option<(CgroupId, GroupReading)> {
        let directory = self.mount.directory(path)?;
        let id = id_of(&fs::metadata(&directory).ok()?)?;
        let reading = GroupReading {
            limit: limits::limit(&directory.join(self.files.limit)),
            high: self.high(&directory),
            current: bytes(&directory.join(self.files.current)),
            reached: None,
            refaults: None,
            pressure: pressure::read(&directory.join("memory.pressure")),
        };
        Some((id, reading))
    }

    fn high(&self, directory: &Path) -> Option<Bytes> {
        limits::limit(&directory.join(self.files.high?))
    }
}

fn id_of(directory: &fs::Metadata) -> Option<CgroupId> {
    CgroupId::of(directory.ino())
}

/// Returns the sum of the counters with names that begin with `start`; `None` if `stat` has no such counter, as in
/// version 1 on older kernels.
fn sum(stat: &str, start: &str) -> Option<u64> {
    let counters =
        stat.lines().filter_map(|line| line.strip_prefix(start)?.split_once(' ')?.1.trim().parse::<u64>().ok());
    counters.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use harness::Scratch;

    use super::*;
    use crate::procfs::memcg_limits::VERSION_1;

    fn hierarchy(scratch: &Scratch, files: &'static Files, groups: &[(&str, &[(&str, &str)])]) -> MemoryGroups {
        let point = scratch.path("root");
        for (path, files) in groups {
            let directory = point.join(path);
            fs::create_dir_all(&directory).unwrap();
            for (name, content) in *files {
                fs::write(directory.join(name), content).unwrap();
            }
        }
        MemoryGroups { files, mount: Mount { root: "/docker".into(), point } }
    }

    #[test]
    fn cgroup_ids_are_directory_inodes() {
        let scratch = Scratch::new();
        let groups = hierarchy(&scratch, &VERSION_2, &[("", &[]), ("a/b", &[("memory.max", "1000\n")]), ("c", &[])]);
        let mut all = groups.all();
        all.sort_by(|(_, one), (_, other)| one.cmp(other));
        let numbers = ["", "a", "a/b", "c"].map(|path| {
            let directory = fs::metadata(scratch.path("root").join(path)).unwrap();
            id_of(&directory).unwrap()
        });
        let paths = ["/docker", "/docker/a", "/docker/a/b", "/docker/c"].map(PathBuf::from);
        assert_eq!(all, numbers.into_iter().zip(paths).collect::<Vec<_>>());
        assert!(groups.is_limited(Path::new("/docker/a/b")));
        assert!(!groups.is_limited(Path::new("/docker/a")) && !groups.is_limited(Path::new("/elsewhere")));
    }

    #[test]
    fn counters_missing_in_a_version_are_none() {
        let scratch = Scratch::new();
        let stat = "workingset_refault_anon 7\nworkingset_refault_file 5\ntotal_workingset_refault_file 50\nfile 9\n";
        let of_one: &[_] = &[
            ("memory.usage_in_bytes", "300\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.failcnt", "4\n"),
            ("memory.stat", stat),
        ];
        let with_swap: &[_] = &[
            ("memory.limit_in_bytes", "4000\n"),
            ("memory.memsw.limit_in_bytes", "4000\n"),
            ("memory.failcnt", "0\n"),
        ];
        let of_two: &[_] = &[
            ("memory.current", "300\n"),
            ("memory.max", "max\n"),
            ("memory.high", "400\n"),
            ("memory.events.local", "low 1\nhigh 5\nmax 6\noom 2\n"),
            ("memory.stat", stat),
            ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"),
        ];
        let groups = hierarchy(&scratch, &VERSION_1, &[("one", of_one), ("bare", &[]), ("swap", with_swap)]);
        let read = |groups: &MemoryGroups, path: &str| groups.read(Path::new(path));
        let one =
            GroupReading { current: Some(Bytes(300)), reached: Some(4), refaults: Some(50), ..GroupReading::default() };
        assert_eq!(read(&groups, "/docker/one"), Some(one));
        assert_eq!(read(&groups, "/docker/swap").unwrap().reached, None);
        assert_eq!(read(&groups, "/docker/bare"), Some(GroupReading::default()));
        assert_eq!(read(&groups, "/docker/gone"), None);
        let groups = hierarchy(&scratch, &VERSION_2, &[("two", of_two)]);
        let two = read(&groups, "/docker/two").unwrap();
        assert_eq!((two.limit, two.high, two.refaults), (None, Some(Bytes(400)), Some(12)));
        assert_eq!(two.reached, Some(11));
        let usage = groups.usage(Path::new("/docker/two"));
        let id = id_of(&fs::metadata(scratch.path("root/two")).unwrap()).unwrap();
        assert_eq!(usage, Some((id, GroupReading { reached: None, refaults: None, ..two })));
        assert_eq!(two.pressure.map(|pressure| pressure.some.total.as_micros()), Some(9));
        assert!(groups.is_limited(Path::new("/docker/two")) && groups.is_version_2());
    }
}
