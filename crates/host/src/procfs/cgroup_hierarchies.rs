//! Cgroup hierarchies with meaningful groups of processes: version 2, and the hierarchies of version 1 with
//! `name=systemd` or the memory controller.

use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use memtrace_model::{Cgroup, CgroupId, HIERARCHIES, Pid};

use super::cgroup_parser;
use super::memcg_limits::{Mount, find_mount};
use super::process::proc_path;
use crate::procfs::kernel_files;

/// The mounted hierarchies, at most [`HIERARCHIES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies(Vec<Hierarchy>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Number in `/proc/PID/cgroup`; 0 for version 2.
    number: u32,
    /// List of controllers in `/proc/PID/cgroup`.
    controllers: String,
    mount: Mount,
}

impl Hierarchies {
    /// Finds the mounted hierarchies.
    ///
    /// # Errors
    ///
    /// Errors of reading `/proc/self`.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(
            &kernel_files::read_to_string("/proc/self/cgroup")?,
            &kernel_files::read("/proc/self/mountinfo")?,
        ))
    }

    fn parse(groups: &str, mounts: &[u8]) -> Self {
        let hierarchy = |line: &str| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers) = (fields.next()?.parse().ok()?, fields.next()?);
            let named = |name: &'static str| controllers.split(',').any(|own| own == name).then_some(name);
            let mount = match controllers {
                "" => find_mount(mounts, "cgroup2", None)?,
                _ => find_mount(mounts, "cgroup", Some(named("name=systemd").or_else(|| named("memory"))?))?,
            };
            Some(Hierarchy { number, controllers: controllers.to_owned(), mount })
        };
        Self(groups.lines().filter_map(hierarchy).take(HIERARCHIES).collect())
    }

    /// Returns the numbers of the hierarchies. BPF programs report the cgroups of a process in this order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|hierarchy| hierarchy.number)
    }

    /// Returns the number of the hierarchy and the id of a cgroup. `path` is the directory of the cgroup, or its path
    /// in one of the hierarchies, such as `system.slice`. Version 2 comes first.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such cgroup.
    pub fn find(&self, path: &Path) -> io::Result<(u32, CgroupId)> {
        let directory = if path.is_absolute() && path.parent().is_some() { fs::metadata(path).ok() } else { None };
        let below = path.strip_prefix("/").unwrap_or(path);
        let is_below = below.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let mut hierarchies: Vec<_> = self.0.iter().collect();
        hierarchies.sort_by_key(|hierarchy| hierarchy.number != 0);
        let as_directory = hierarchies.iter().find_map(|hierarchy| {
            let root = fs::metadata(&hierarchy.mount.point).ok()?;
            let own = directory.as_ref().filter(|own| own.is_dir() && own.dev() == root.dev())?;
            Some((hierarchy.number, CgroupId::of(own.ino())?))
        });
        let as_path = hierarchies.iter().filter(|_| is_below).find_map(|hierarchy| {
            let own = fs::metadata(hierarchy.mount.point.join(below)).ok().filter(fs::Metadata::is_dir)?;
            Some((hierarchy.number, CgroupId::of(own.ino())?))
        });
        as_directory.or(as_path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Returns the cgroups of a process and their ancestors, with the numbers of their hierarchies; no cgroup if the
    /// process has exited.
    #[must_use]
    pub fn of_process(&self, pid: Pid) -> Vec<(u32, CgroupId)> {
        let groups = kernel_files::read_to_string(proc_path(pid, "cgroup")).unwrap_or_default();
        let path = |hierarchy: &Hierarchy| {
            let start = format!("{}:{}:", hierarchy.number, hierarchy.controllers);
            groups.lines().find_map(|line| line.strip_prefix(&start))
        };
        let paths = self.0.iter().filter_map(|hierarchy| Some((hierarchy, path(hierarchy)?)));
        paths.flat_map(|(hierarchy, path)| hierarchy.with_ancestors(path)).collect()
    }

    /// Returns the cgroups at `path` in all hierarchies and their ancestors, with the numbers of their hierarchies.
    #[must_use]
    pub fn at_path(&self, path: &str) -> Vec<(u32, CgroupId)> {
        self.0.iter().flat_map(|hierarchy| hierarchy.with_ancestors(path)).collect()
    }

    /// Lists all cgroups with the number of their hierarchy and their path. A cgroup that is created or removed at the
    /// same time may be missing.
    #[must_use]
    pub fn all(&self) -> Vec<(u32, CgroupId, String)> {
        let mut groups = Vec::new();
        for Hierarchy { number, mount, .. } in &self.0 {
            let mut add = |inode, directory: &Path| {
                let named = CgroupId::of(inode).zip(mount.name(directory));
                groups.extend(named.map(|(id, path)| (*number, id, path.to_string_lossy().into_owned())));
            };
            if let Ok(root) = fs::metadata(&mount.point) {
                add(root.ino(), &mount.point);
            }
            let mut queue = vec![mount.point.clone()];
            while let Some(directory) = queue.pop() {
                for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
                    if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        let path: PathBuf = entry.path();
                        // The kernel's id of a cgroup is the inode of its directory (`cgroup_id`,
                        // include/linux/cgroup.h).
                        add(entry.ino(), &path);
                        queue.push(path);
                    }
                }
            }
        }
        groups
    }

    /// Returns the most specific cgroup of a process. `paths` has its path in each hierarchy, in the order of
    /// [`Self::numbers`].
    #[must_use]
    pub fn most_specific(&self, paths: &[&str]) -> Option<Cgroup> {
        let line = |(hierarchy, path): (&Hierarchy, &&str)| {
            format!("{}:{}:{}\n", hierarchy.number, hierarchy.controllers, path.replace('\n', "\\n"))
        };
        cgroup_parser::parse(&self.0.iter().zip(paths).map(line).collect::<String>())
    }
}

impl Hierarchy {
    /// Returns the existing cgroups among the one at `path` and its ancestors.
    fn with_ancestors(&self, path: &str) -> Vec<(u32, CgroupId)> {
        let Some(directory) = self.mount.directory(Path::new(path)) else { return Vec::new() };
        let directories = directory.ancestors().take_while(|directory| directory.starts_with(&self.mount.point));
        let id = |directory: &Path| CgroupId::of(fs::metadata(directory).ok()?.ino());
        directories.filter_map(|directory| Some((self.number, id(directory)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "9:name=systemd:/a\n8:pids:/\n4:cpu,memory:/b\n2:cpuset:/\n0::/c\n";
    const MOUNTS: &[u8] = b"30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs ro\n\
        31 30 0:27 / /cg/systemd rw - cgroup cgroup rw,name=systemd\n\
        32 30 0:28 / /cg/pids rw - cgroup cgroup rw,pids\n\
        33 30 0:29 /docker /cg/memory rw - cgroup cgroup rw,cpu,memory\n\
        34 30 0:30 / /cg/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn hierarchies_with_meaningful_groups_are_found() {
        let hierarchies = |groups: &str| Hierarchies::parse(groups, MOUNTS).numbers().collect::<Vec<_>>();
        assert_eq!(hierarchies(HYBRID), [9, 4, 0]);
        assert_eq!(hierarchies("0::/c\n"), [0]);
        assert_eq!(hierarchies("7:cpu:/\n"), [] as [u32; 0]);
        assert_eq!(
            Hierarchies::parse(HYBRID, b""),
            Hierarchies::default(),
            "an unmounted hierarchy has no directories"
        );
        let memory = Hierarchies::parse("4:memory:/docker/b\n", MOUNTS).0.remove(0).mount;
        assert_eq!(memory, Mount { root: "/docker".into(), point: "/cg/memory".into() });
    }

    #[test]
    fn the_most_specific_path_counts() {
        let hierarchies = Hierarchies::parse(HYBRID, MOUNTS);
        let path = |paths| hierarchies.most_specific(paths).map(|cgroup| cgroup.path);
        assert_eq!(path(&["/", "/jobs/x", "/"]).as_deref(), Some("/jobs/x"));
        assert_eq!(path(&["/s", "/m", "/u"]).as_deref(), Some("/u"), "version 2 comes first");
        assert_eq!(path(&["/", "/", "/"]).as_deref(), Some("/"));
        assert_eq!(path(&[]), None);
    }

    #[test]
    fn own_cgroups_and_their_ancestors_are_found() {
        let own = Pid(std::process::id());
        let hierarchies = Hierarchies::read().unwrap();
        assert!(!hierarchies.0.is_empty());
        for hierarchy in &hierarchies.0 {
            let (number, id) = hierarchies.find(&hierarchy.mount.point).unwrap();
            assert_eq!(number, hierarchy.number);
            let groups = hierarchies.of_process(own);
            assert!(groups.contains(&(number, id)), "every process is below the root: {groups:?}");
            assert_eq!(hierarchies.of_process(Pid(u32::MAX)), []);
            assert!(hierarchies.at_path("/no-such-group").contains(&(number, id)), "ancestors may exist");
            assert!(hierarchies.all().contains(&(number, id, "/".to_owned())));
        }
        assert!(hierarchies.find(Path::new("/")).is_ok());
    }

    #[test]
    fn other_directories_are_no_cgroups() {
        let hierarchies = Hierarchies::read().unwrap();
        for path in ["/tmp", "no-such.slice", "../../..", "cgroup.procs"] {
            assert_eq!(hierarchies.find(Path::new(path)).unwrap_err().kind(), io::ErrorKind::NotFound, "{path}");
        }
    }
}
