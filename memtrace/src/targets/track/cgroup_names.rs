//! Paths of existing and removed cgroups, by the cgroup IDs that the BPF programs report.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_host::kernel::{RemovedCgroup, RemovedCgroupReader};
use memtrace_host::procfs::Hierarchies;
use memtrace_model::{Cgroup, CgroupId, HIERARCHIES};

/// Maximum number of removed cgroups with a known path. The paths take about 4 MB. If a process ended in a forgotten
/// cgroup, reports show the cgroup that was read while the process ran.
const MAX_REMOVED: usize = 16_384;

/// Paths of cgroups by hierarchy number and cgroup ID.
type Paths = HashMap<(u32, CgroupId), String>;

/// Paths of the cgroups that were removed during the run.
#[derive(Default)]
pub(super) struct CgroupNames {
    reader: Option<RemovedCgroupReader>,
    removed: Paths,
    /// Keys of `removed`, oldest first.
    order: VecDeque<(u32, CgroupId)>,
}

impl CgroupNames {
    /// Creates an empty store, which reads the paths of removed cgroups from `reader`.
    pub(super) fn from_reader(reader: RemovedCgroupReader) -> Self {
        Self { reader: Some(reader), ..Self::default() }
    }

    /// Reads the paths of the cgroups that were removed since the last call.
    pub(super) fn update(&mut self) {
        let mut new = Vec::new();
        if let Some(reader) = &mut self.reader {
            reader.drain(|cgroup| new.push(cgroup));
        }
        new.into_iter().for_each(|cgroup| self.add(cgroup));
    }

    fn add(&mut self, cgroup: RemovedCgroup) {
        let key = (cgroup.hierarchy, cgroup.id);
        if self.removed.insert(key, cgroup.path).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MAX_REMOVED
            && let Some(oldest) = self.order.pop_front()
        {
            self.removed.remove(&oldest);
        }
    }

    /// Returns a resolver with the paths of existing and of removed cgroups.
    pub(super) fn resolver(&self) -> CgroupResolver {
        let hierarchies = Hierarchies::read().unwrap_or_default();
        let existing = hierarchies.all().into_iter().map(|(number, id, path)| ((number, id), path));
        let removed = self.removed.iter().map(|(key, path)| (*key, path.clone()));
        let paths: Paths = removed.chain(existing).collect();
        let mut ids: HashMap<_, BTreeSet<_>> = HashMap::new();
        for ((number, id), path) in &paths {
            ids.entry((*number, PathBuf::from(path))).or_default().insert(*id);
        }
        CgroupResolver { paths, ids, hierarchies, resolved: HashMap::new() }
    }
}

/// Finds the paths and the ancestors of cgroups by ID.
#[derive(Default)]
pub(super) struct CgroupResolver {
    hierarchies: Hierarchies,
    paths: Paths,
    /// IDs of all cgroups that had a path, by hierarchy number and path.
    ids: HashMap<(u32, PathBuf), BTreeSet<CgroupId>>,
    resolved: HashMap<[Option<CgroupId>; HIERARCHIES], Option<Arc<Cgroup>>>,
}

impl CgroupResolver {
    /// Returns the cgroups with these IDs (one ID for each hierarchy) and their ancestors, each with its hierarchy number.
    pub(super) fn with_ancestors(&self, ids: [Option<CgroupId>; HIERARCHIES]) -> Vec<(u32, CgroupId)> {
        let known = self.hierarchies.numbers().zip(ids).filter_map(|(number, id)| Some((number, id?)));
        known.flat_map(|group| iter::once(group).chain(self.ancestors(group))).collect()
    }

    fn ancestors(&self, (number, id): (u32, CgroupId)) -> impl Iterator<Item = (u32, CgroupId)> + '_ {
        let path = self.paths.get(&(number, id)).map(Path::new);
        path.into_iter().flat_map(|path| path.ancestors().skip(1)).filter_map(move |path| {
            // A newer cgroup has a larger ID (`__kernfs_new_node`, fs/kernfs/dir.c). So the parent is the cgroup at the
            // parent's path with the largest ID below the child's ID.
            let ids = self.ids.get(&(number, path.to_owned()))?;
            Some((number, *ids.range(..id).next_back()?))
        })
    }

    /// Returns true if the path of each of these cgroups is known.
    pub(super) fn knows(&self, ids: [Option<CgroupId>; HIERARCHIES]) -> bool {
        let is_known =
            |(number, id): (u32, Option<CgroupId>)| id.is_none_or(|id| self.paths.contains_key(&(number, id)));
        // An empty `paths` means that the hierarchies were not read yet.
        !self.paths.is_empty() && self.hierarchies.numbers().zip(ids).all(is_known)
    }

    /// Returns the cgroup with these IDs, one for each hierarchy; `None` if one of the paths is not known.
    pub(super) fn cgroup(&mut self, ids: [Option<CgroupId>; HIERARCHIES]) -> Option<Arc<Cgroup>> {
        if let Some(known) = self.resolved.get(&ids) {
            return known.clone();
        }
        let cgroup = self.paths(ids).and_then(|paths| self.hierarchies.most_specific(&paths)).map(Arc::new);
        self.resolved.insert(ids, cgroup.clone());
        cgroup
    }

    /// Returns the path for each ID, in the order of the hierarchies; `None` if one of them is not known.
    pub(super) fn paths(&self, ids: [Option<CgroupId>; HIERARCHIES]) -> Option<Vec<&str>> {
        let path = |(number, id): (u32, Option<CgroupId>)| self.paths.get(&(number, id?)).map(String::as_str);
        self.hierarchies.numbers().zip(ids).map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_those_that_existed_when_the_group_was_created() {
        let id = |number| CgroupId::of(number).unwrap();
        let hierarchies = Hierarchies::read().unwrap();
        let number = hierarchies.numbers().next().unwrap();
        let mut names = CgroupNames::default();
        // The cgroup at /mt-jobs was removed and created again.
        let groups = [(u64::MAX - 9, "/mt-jobs"), (u64::MAX - 8, "/mt-jobs/a"), (u64::MAX - 7, "/mt-jobs")];
        let groups = groups.into_iter().chain([(u64::MAX - 6, "/mt-jobs/a"), (u64::MAX - 5, "/mt-jobs2/a")]);
        names.removed.extend(groups.map(|(own, path)| ((number, id(own)), path.to_owned())));
        let resolver = names.resolver();
        let (_, root) = hierarchies.find("/".as_ref()).unwrap();
        let found = |own: u64| {
            let groups = resolver.with_ancestors([Some(id(own)), None, None]);
            groups.into_iter().map(|(hierarchy, id)| (hierarchy, id.number())).collect::<Vec<_>>()
        };
        let expected = |ids: &[u64]| ids.iter().chain([&root.number()]).map(|&id| (number, id)).collect::<Vec<_>>();
        assert_eq!(found(u64::MAX - 8), expected(&[u64::MAX - 8, u64::MAX - 9]));
        assert_eq!(found(u64::MAX - 6), expected(&[u64::MAX - 6, u64::MAX - 7]));
        assert_eq!(found(u64::MAX - 5), expected(&[u64::MAX - 5]), "the name of its parent is not known");
        assert_eq!(found(u64::MAX - 4), [(number, u64::MAX - 4)], "its own name is not known");
        assert_eq!(resolver.with_ancestors([None; HIERARCHIES]), []);
    }

    #[test]
    fn the_names_of_the_last_removed_cgroups_are_kept() {
        let mut names = CgroupNames::default();
        let last = MAX_REMOVED as u64 + 5;
        for number in 1..=last {
            let id = CgroupId::of(number).unwrap();
            names.add(RemovedCgroup { hierarchy: 0, id, path: format!("/jobs/{number}") });
        }
        assert_eq!((names.removed.len(), names.order.len()), (MAX_REMOVED, MAX_REMOVED));
        let name = |number| names.removed.get(&(0, CgroupId::of(number).unwrap())).map(String::as_str);
        assert_eq!([name(5), name(6), name(last)], [None, Some("/jobs/6"), Some(&*format!("/jobs/{last}"))]);
    }
}
