//! IDs of allocators, which BPF programs add to allocation events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use memtrace_model::AllocatorId;

/// ID and name of each object with an allocator.
#[derive(Debug, Default)]
pub(super) struct AllocatorIds {
    by_object: HashMap<PathBuf, AllocatorId>,
    names: BTreeMap<AllocatorId, String>,
    /// ID of Go's allocator; `None` before it is used.
    go: Option<AllocatorId>,
}

/// Name of Go's allocator. Each Go program has its own copy of the allocator, and all copies share this name.
const GO: &str = "go";

impl AllocatorIds {
    /// Returns the ID of the allocator in the object `handle`. A new allocator gets the next ID, and a name from `kind`
    /// and the file name of `path`. After 65,535 objects, the ID is [`AllocatorId::UNKNOWN`].
    pub(super) fn assign(&mut self, handle: &Path, kind: &str, path: &Path) -> AllocatorId {
        if let Some(&id) = self.by_object.get(handle) {
            return id;
        }
        let Some(id) = self.next_id() else { return AllocatorId::UNKNOWN };
        self.by_object.insert(handle.to_owned(), id);
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = if file == kind { file.into_owned() } else { format!("{kind} ({file})") };
        self.names.insert(id, name);
        id
    }

    /// Returns the ID of Go's allocator. After 65,535 objects, the ID is [`AllocatorId::UNKNOWN`].
    pub(super) fn go(&mut self) -> AllocatorId {
        if let Some(id) = self.go {
            return id;
        }
        let Some(id) = self.next_id() else { return AllocatorId::UNKNOWN };
        self.names.insert(id, String::from(GO));
        *self.go.insert(id)
    }

    /// Returns the next ID. IDs start at 1, because 0 is `UNKNOWN`.
    fn next_id(&self) -> Option<AllocatorId> {
        u16::try_from(self.names.len() + 1).ok().map(AllocatorId)
    }

    /// Forgets objects with closed files. The names of their IDs are kept, because blocks can still have these IDs.
    pub(super) fn forget(&mut self, closed: &HashSet<PathBuf>) {
        self.by_object.retain(|handle, _| !closed.contains(handle));
    }

    pub(super) fn get(&self, handle: &Path) -> AllocatorId {
        self.by_object.get(handle).copied().unwrap_or(AllocatorId::UNKNOWN)
    }

    pub(super) const fn names(&self) -> &BTreeMap<AllocatorId, String> {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_keeps_its_number_and_first_name() {
        let mut ids = AllocatorIds::default();
        let mut assign = |handle: &str, kind, path: &str| ids.assign(Path::new(handle), kind, Path::new(path)).0;
        assert_eq!(assign("/proc/self/fd/7", "glibc", "/usr/lib/libc.so.6"), 1);
        assert_eq!(assign("/proc/self/fd/9", "libjemalloc.so.2", "/opt/libjemalloc.so.2"), 2);
        assert_eq!(assign("/proc/self/fd/7", "glibc", "/lib/libc.so.6"), 1);
        let names: Vec<_> = ids.names().values().map(String::as_str).collect();
        assert_eq!(names, ["glibc (libc.so.6)", "libjemalloc.so.2"]);
    }

    #[test]
    fn go_has_one_number() {
        let mut ids = AllocatorIds::default();
        assert_eq!(ids.assign(Path::new("/proc/self/fd/7"), "glibc", Path::new("/lib/libc.so.6")), AllocatorId(1));
        assert_eq!([ids.go(), ids.go()], [AllocatorId(2); 2]);
        assert_eq!(ids.assign(Path::new("/proc/self/fd/9"), "musl", Path::new("/lib/libc.so")), AllocatorId(3));
        let names: Vec<_> = ids.names().values().map(String::as_str).collect();
        assert_eq!(names, ["glibc (libc.so.6)", "go", "musl (libc.so)"]);
    }

    #[test]
    fn the_handle_of_a_closed_file_is_another_object() {
        let mut ids = AllocatorIds::default();
        let handle = Path::new("/proc/self/fd/7");
        assert_eq!(ids.assign(handle, "glibc", Path::new("/lib/libc.so.6")), AllocatorId(1));
        ids.forget(&HashSet::from([handle.to_owned()]));
        assert_eq!(ids.get(handle), AllocatorId::UNKNOWN);
        assert_eq!(ids.assign(handle, "musl", Path::new("/lib/libc.so")), AllocatorId(2));
        assert_eq!(ids.names().len(), 2, "blocks may have the old number");
    }

    #[test]
    fn allocators_beyond_the_last_number_are_unknown() {
        let mut ids = AllocatorIds::default();
        let mut assign = |nth: u32| ids.assign(Path::new(&nth.to_string()), "glibc", Path::new("/libc.so.6"));
        for nth in 1..=u32::from(u16::MAX) {
            assert_eq!(assign(nth), AllocatorId(nth as u16));
        }
        assert_eq!(assign(1 << 20), AllocatorId::UNKNOWN);
        assert_eq!(assign(7), AllocatorId(7));
    }
}
