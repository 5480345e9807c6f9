//! Limit of the copies of files in memory.

use memtrace_model::Pid;

use crate::procfs;

/// Maximum size of a copy in bytes.
pub(crate) const MAX_COPY: u64 = 1 << 30;

/// Least limit.
const LEAST_COPY: u64 = 64 << 20;

/// Returns the maximum size of copies in bytes: a half of the memory that is left to the cgroup of memtrace. The page cache
/// of the cgroup can be reclaimed.
pub(crate) fn max_copy() -> u64 {
    let Some(group) = procfs::cgroup_memory(Pid(std::process::id())) else { return MAX_COPY };
    let Some(limit) = group.limit else { return MAX_COPY };
    let used = limit.current.0.saturating_sub(group.file.map_or(0, |file| file.0));
    (limit.most.0.saturating_sub(used) / 2).clamp(LEAST_COPY, MAX_COPY)
}
