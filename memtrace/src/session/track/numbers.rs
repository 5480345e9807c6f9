//! Numbers for allocators, by which the kernel half can say who handed a block out.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::model::AllocatorId;

/// Allocators' numbers, one an object, and their names.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    by_object: HashMap<PathBuf, AllocatorId>,
    names: BTreeMap<AllocatorId, String>,
}

impl Numbers {
    /// The number of the allocator in the object at `handle`, called `kind` and seen at `path`; one that stands for no
    /// allocator where there are too many.
    pub(super) fn number(&mut self, handle: &Path, kind: &str, path: &Path) -> AllocatorId {
        if let Some(&id) = self.by_object.get(handle) {
            return id;
        }
        // The first is 1: 0 says that it is not known.
        let Ok(number) = u16::try_from(self.by_object.len() + 1) else { return AllocatorId::UNKNOWN };
        let id = AllocatorId(number);
        self.by_object.insert(handle.to_owned(), id);
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = if file == kind { file.into_owned() } else { format!("{kind} ({file})") };
        self.names.insert(id, name);
        id
    }

    /// The number that the allocator in the object at `handle` was given.
    pub(super) fn known(&self, handle: &Path) -> AllocatorId {
        self.by_object.get(handle).copied().unwrap_or(AllocatorId::UNKNOWN)
    }

    /// What the allocators are called.
    pub(super) const fn names(&self) -> &BTreeMap<AllocatorId, String> {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_one_number_and_its_first_name() {
        let mut numbers = Numbers::default();
        let mut number = |handle: &str, kind, path: &str| numbers.number(Path::new(handle), kind, Path::new(path)).0;
        assert_eq!(number("/proc/self/fd/7", "glibc", "/usr/lib/libc.so.6"), 1);
        assert_eq!(number("/proc/self/fd/9", "libjemalloc.so.2", "/opt/libjemalloc.so.2"), 2);
        assert_eq!(number("/proc/self/fd/7", "glibc", "/lib/libc.so.6"), 1);
        let names: Vec<_> = numbers.names().values().map(String::as_str).collect();
        assert_eq!(names, ["glibc (libc.so.6)", "libjemalloc.so.2"]);
    }

    #[test]
    fn allocators_beyond_the_numbers_are_not_told_apart() {
        let mut numbers = Numbers::default();
        let mut number = |nth: u32| numbers.number(Path::new(&nth.to_string()), "glibc", Path::new("/libc.so.6"));
        for nth in 1..=u32::from(u16::MAX) {
            assert_eq!(number(nth), AllocatorId(nth as u16));
        }
        assert_eq!(number(1 << 20), AllocatorId::UNKNOWN);
        assert_eq!(number(7), AllocatorId(7));
    }
}
