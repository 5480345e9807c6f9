//! Paths of cgroups, from the ids that the BPF programs report.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kernel::RemovedCgroupReader;
use crate::model::{Cgroup, CgroupId, HIERARCHIES};
use crate::procfs::Hierarchies;

/// The most removed cgroups whose names are kept: some 10 MB. Processes in further ones keep the cgroup that was read
/// while they ran.
const MAX_REMOVED: usize = 65_536;

/// Paths by number of the hierarchy and id.
type Paths = HashMap<(u32, CgroupId), String>;

/// Names of the cgroups that are removed during a run.
#[derive(Default)]
pub(super) struct CgroupNames {
    reader: Option<RemovedCgroupReader>,
    removed: Paths,
}

impl CgroupNames {
    /// Returns the names that `reader` provides.
    pub(super) fn from_reader(reader: RemovedCgroupReader) -> Self {
        Self { reader: Some(reader), removed: Paths::new() }
    }

    /// Reads the names of the cgroups that were removed since the last call.
    pub(super) fn update(&mut self) {
        let Self { reader, removed } = self;
        if let Some(reader) = reader {
            reader.drain(|cgroup| {
                if removed.len() < MAX_REMOVED {
                    removed.insert((cgroup.hierarchy, cgroup.id), cgroup.path);
                }
            });
        }
    }

    /// Finds the paths of the cgroups that exist, and adds those of the removed ones.
    pub(super) fn resolver(&self) -> CgroupResolver {
        let hierarchies = Hierarchies::read().unwrap_or_default();
        let existing = hierarchies.all().into_iter().map(|(number, id, path)| ((number, id), path));
        let removed = self.removed.iter().map(|(key, path)| (*key, path.clone()));
        CgroupResolver { paths: removed.chain(existing).collect(), hierarchies, resolved: HashMap::new() }
    }
}

/// Finds the cgroup of a process.
pub(super) struct CgroupResolver {
    hierarchies: Hierarchies,
    paths: Paths,
    resolved: HashMap<[Option<CgroupId>; HIERARCHIES], Option<Arc<Cgroup>>>,
}

impl CgroupResolver {
    /// Returns the cgroup with these ids; `None` if the path in one of the hierarchies is not known.
    pub(super) fn cgroup(&mut self, ids: [Option<CgroupId>; HIERARCHIES]) -> Option<Arc<Cgroup>> {
        let Self { hierarchies, paths, resolved } = self;
        let resolve = || {
            let path = |(number, id): (u32, Option<CgroupId>)| paths.get(&(number, id?)).map(String::as_str);
            let all: Option<Vec<_>> = hierarchies.numbers().zip(ids).map(path).collect();
            hierarchies.most_specific(&all?).map(Arc::new)
        };
        resolved.entry(ids).or_insert_with(resolve).clone()
    }
}
