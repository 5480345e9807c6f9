//! Paths of the cgroups of OOM kills.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_host::procfs::MemoryGroups;
use memtrace_model::{CgroupId, OomKill};

/// Returns the paths of the memcgs of the victims, and of the memcgs that were full, as far as these memcgs still exist.
pub(in crate::trace) fn killed_cgroups<'a>(kills: impl IntoIterator<Item = &'a OomKill>) -> BTreeMap<CgroupId, String> {
    let ids: BTreeSet<CgroupId> = kills.into_iter().flat_map(|kill| [kill.group, kill.full]).flatten().collect();
    let hierarchy = if ids.is_empty() { None } else { MemoryGroups::find() };
    let found = hierarchy.iter().flat_map(MemoryGroups::all).filter(|(id, _)| ids.contains(id));
    found.map(|(id, path)| (id, path.to_string_lossy().into_owned())).collect()
}
