//! The control groups of the hierarchy that has the memory controller: which there are, and what each says of its
//! memory.

use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::pressure;
use crate::model::{Bytes, CgroupId, Pressure};
use crate::procfs::memcg_limits as limits;
use crate::procfs::memcg_limits::{Files, Mount, VERSION_2};

/// The hierarchy of control groups that has the memory controller.
#[derive(Debug)]
pub(crate) struct MemoryGroups {
    files: &'static Files,
    mount: Mount,
}

/// What a group says of its memory at one moment. What it does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GroupReading {
    /// How much it may use.
    pub limit: Option<Bytes>,
    /// From where on it is slowed down.
    pub high: Option<Bytes>,
    /// How much it uses.
    pub current: Option<Bytes>,
    /// Pages that ever came back soon after they were freed.
    pub refaults: Option<u64>,
    /// How long its tasks have waited for memory.
    pub pressure: Option<Pressure>,
}

impl MemoryGroups {
    /// The hierarchy as it is mounted; `None` where it is not.
    #[must_use]
    pub(crate) fn find() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (files, _) = limits::controller(&own)?;
        let mount = limits::mount_of(&fs::read("/proc/self/mountinfo").ok()?, files)?;
        Some(Self { files, mount })
    }

    /// Whether it is of version 2.
    #[must_use]
    pub(crate) fn is_version_2(&self) -> bool {
        *self.files == VERSION_2
    }

    /// All groups that are mounted, and their paths. A group that comes or goes meanwhile may be missing.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<(CgroupId, PathBuf)> {
        let mut found = Vec::new();
        let mut left = vec![self.mount.point.clone()];
        if let Some(id) = fs::metadata(&self.mount.point).ok().and_then(|root| id_of(&root)) {
            found.push((id, self.mount.root.clone()));
        }
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = entry.path();
                    // The kernel's id of a group is its folder's inode (`kernfs_ino`, include/linux/kernfs.h).
                    found.extend(CgroupId::of(entry.ino()).zip(self.name(&path)));
                    left.push(path);
                }
            }
        }
        found
    }

    /// Whether the group of that path has a limit of its own.
    #[must_use]
    pub(crate) fn is_limited(&self, path: &Path) -> bool {
        let Some(folder) = self.folder(path) else { return false };
        limits::limit(&folder.join(self.files.limit)).is_some() || self.high(&folder).is_some()
    }

    /// What the group of that path says now; `None` where there is none.
    #[must_use]
    pub(crate) fn read(&self, path: &Path) -> Option<GroupReading> {
        let folder = self.folder(path).filter(|folder| folder.is_dir())?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        Some(GroupReading {
            limit: limits::limit(&folder.join(self.files.limit)),
            high: self.high(&folder),
            current: limits::bytes(&folder.join(self.files.current)),
            refaults: sum(&stat, self.files.refaults),
            pressure: pressure::read(&folder.join("memory.pressure")),
        })
    }

    fn high(&self, folder: &Path) -> Option<Bytes> {
        limits::limit(&folder.join(self.files.high?))
    }

    /// The path of the group that lies in `folder`.
    fn name(&self, folder: &Path) -> Option<PathBuf> {
        Some(self.mount.root.join(folder.strip_prefix(&self.mount.point).ok()?))
    }

    fn folder(&self, path: &Path) -> Option<PathBuf> {
        Some(self.mount.point.join(path.strip_prefix(&self.mount.root).ok()?))
    }
}

fn id_of(folder: &fs::Metadata) -> Option<CgroupId> {
    CgroupId::of(folder.ino())
}

/// The sum of the counters whose names begin with `start`, a line each; `None` where there is none, as in version 1 of
/// older kernels.
fn sum(stat: &str, start: &str) -> Option<u64> {
    let counters =
        stat.lines().filter_map(|line| line.strip_prefix(start)?.split_once(' ')?.1.trim().parse::<u64>().ok());
    counters.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::memcg_limits::VERSION_1;
    use crate::scratch::Scratch;

    fn hierarchy(scratch: &Scratch, files: &'static Files, groups: &[(&str, &[(&str, &str)])]) -> MemoryGroups {
        let point = scratch.path("root");
        for (path, files) in groups {
            let folder = point.join(path);
            fs::create_dir_all(&folder).unwrap();
            for (name, content) in *files {
                fs::write(folder.join(name), content).unwrap();
            }
        }
        MemoryGroups { files, mount: Mount { root: "/docker".into(), point } }
    }

    #[test]
    fn groups_are_known_by_the_numbers_of_their_folders() {
        let scratch = Scratch::new();
        let groups = hierarchy(&scratch, &VERSION_2, &[("", &[]), ("a/b", &[("memory.max", "1000\n")]), ("c", &[])]);
        let mut found = groups.all();
        found.sort_by(|(_, one), (_, other)| one.cmp(other));
        let numbers = ["", "a", "a/b", "c"].map(|path| {
            let folder = fs::metadata(scratch.path("root").join(path)).unwrap();
            id_of(&folder).unwrap()
        });
        let paths = ["/docker", "/docker/a", "/docker/a/b", "/docker/c"].map(PathBuf::from);
        assert_eq!(found, numbers.into_iter().zip(paths).collect::<Vec<_>>());
        assert!(groups.is_limited(Path::new("/docker/a/b")));
        assert!(!groups.is_limited(Path::new("/docker/a")) && !groups.is_limited(Path::new("/elsewhere")));
    }

    #[test]
    fn what_a_version_does_not_tell_is_not_zero() {
        let scratch = Scratch::new();
        let stat = "workingset_refault_anon 7\nworkingset_refault_file 5\ntotal_workingset_refault_file 50\nfile 9\n";
        let of_one: &[_] = &[
            ("memory.usage_in_bytes", "300\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.stat", stat),
        ];
        let of_two: &[_] = &[
            ("memory.current", "300\n"),
            ("memory.max", "max\n"),
            ("memory.high", "400\n"),
            ("memory.stat", stat),
            ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"),
        ];
        let groups = hierarchy(&scratch, &VERSION_1, &[("one", of_one), ("bare", &[])]);
        let read = |groups: &MemoryGroups, path: &str| groups.read(Path::new(path));
        let one = GroupReading { current: Some(Bytes(300)), refaults: Some(50), ..GroupReading::default() };
        assert_eq!(read(&groups, "/docker/one"), Some(one));
        assert_eq!(read(&groups, "/docker/bare"), Some(GroupReading::default()));
        assert_eq!(read(&groups, "/docker/gone"), None);
        let groups = hierarchy(&scratch, &VERSION_2, &[("two", of_two)]);
        let two = read(&groups, "/docker/two").unwrap();
        assert_eq!((two.limit, two.high, two.refaults), (None, Some(Bytes(400)), Some(12)));
        assert_eq!(two.pressure.map(|pressure| pressure.some.total.as_micros()), Some(9));
        assert!(groups.is_limited(Path::new("/docker/two")) && groups.is_version_2());
    }
}
