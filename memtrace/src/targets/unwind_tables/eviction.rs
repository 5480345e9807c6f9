//! Eviction of the tables of objects that no process has mapped, so that the BPF maps have room for other tables.
//!
//! When a process maps the object of an evicted table, the table is loaded again from the cache on disk.
//!
//! BPF programs that looked up the table before the eviction may still read it. So the space of the table is reused only when
//! two conditions are met: later mmap events were applied, which invalidates the look-ups, and the BPF programs that were
//! running have ended. A round is the time between two calls of [`Eviction::end_round`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use memtrace_host::kernel::unwind_maps::ObjectKey;
use memtrace_model::Object;

use super::placement::Placement;

/// Share of free space below which tables are evicted.
const LOW: f64 = 0.25;

/// Number of tables that are evicted at once.
const EVICTED_AT_ONCE: usize = 8;

/// Number of rounds without a search, after a search has found no table to evict.
const PAUSE: u32 = 250;

/// Number of rounds until the space of an evicted table is reused.
const ROUNDS: u32 = 2;

/// Maximum number of remembered keys of a file. A file gets another key with each new change time (ctime).
const MAX_KEYS: usize = 8;

/// State of the eviction of tables.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    /// Keys of each published object, by object handle.
    keys: HashMap<PathBuf, Vec<ObjectKey>>,
    /// Space of evicted tables, with the number of rounds since the eviction.
    retired: Vec<(Space, u32)>,
    /// Objects without space for their tables, by object handle.
    refused: HashMap<PathBuf, Weak<Object>>,
    /// Number of rounds until the next search for tables to evict.
    pause: u32,
}

/// Range of pages in the BPF map that belongs to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) page_base: u32,
    pub(super) pages: u32,
}

impl Eviction {
    /// Records a key of an object. If the object has too many keys, returns its oldest key, which the caller forgets.
    pub(super) fn add_key(&mut self, handle: &Path, key: ObjectKey) -> Option<ObjectKey> {
        let keys = self.keys.entry(handle.to_owned()).or_default();
        if keys.contains(&key) {
            return None;
        }
        keys.push(key);
        (keys.len() > MAX_KEYS).then(|| keys.remove(0))
    }

    /// Returns true if no table can be evicted at the moment.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.pause > 0
    }

    /// Returns true if there was no space for the table of an object.
    pub(super) fn is_refused(&self, handle: &Path) -> bool {
        self.refused.contains_key(handle)
    }

    /// Records that there was no space for the table of an object.
    pub(super) fn refuse(&mut self, handle: &Path, object: &Arc<Object>) {
        self.refused.insert(handle.to_owned(), Arc::downgrade(object));
    }

    /// Retires the table of an object, if the object has one. Returns the keys of the object, which the caller forgets.
    pub(super) fn retire(&mut self, handle: &Path, placement: Option<&Placement>) -> Vec<ObjectKey> {
        self.refused.remove(handle);
        let space = placement.map(|&Placement { page_base, pages, .. }| Space { page_base, pages });
        self.retired.extend(space.map(|space| (space, 0)));
        self.keys.remove(handle).unwrap_or_default()
    }

    /// Chooses objects for the eviction of their tables: the first [`EVICTED_AT_ONCE`] of the `idle` objects that `has_table`
    /// accepts. `free`: free share of the space.
    ///
    /// Chooses none in three cases: no table lacks space and enough is free; the space of evicted tables will be free
    /// soon; or one of the last [`PAUSE`] rounds searched without result.
    pub(super) fn choose(
        &mut self,
        free: f64,
        has_table: impl FnMut(&PathBuf) -> bool,
        idle: impl FnOnce() -> Vec<PathBuf>,
    ) -> Vec<PathBuf> {
        let is_short = free < LOW || !self.refused.is_empty();
        if !is_short || !self.retired.is_empty() || self.pause > 0 {
            return Vec::new();
        }
        let chosen: Vec<_> = idle().into_iter().filter(has_table).take(EVICTED_AT_ONCE).collect();
        self.pause = if chosen.is_empty() { PAUSE } else { 0 };
        chosen
    }

    /// Ends a round. All mmap events up to now must be applied. Returns the space of evicted tables that only BPF
    /// programs already running can still read.
    pub(super) fn end_round(&mut self) -> Vec<Space> {
        self.pause = self.pause.saturating_sub(1);
        self.retired.iter_mut().for_each(|(_, rounds)| *rounds += 1);
        self.retired.extract_if(.., |(_, rounds)| *rounds >= ROUNDS).map(|(space, _)| space).collect()
    }

    /// Returns the handles of the objects without space for their tables.
    pub(super) fn refused(&self) -> Vec<PathBuf> {
        self.refused.keys().cloned().collect()
    }

    /// Removes the objects without space for their tables, and returns the handle, the object and the keys of each. The
    /// object is `None` if nothing uses it any more.
    pub(super) fn take_refused(&mut self) -> Vec<(PathBuf, Option<Arc<Object>>, Vec<ObjectKey>)> {
        let keys = |handle: &PathBuf| self.keys.get(handle).cloned().unwrap_or_default();
        let refused = std::mem::take(&mut self.refused).into_iter();
        refused.map(|(handle, object)| (handle.clone(), object.upgrade(), keys(&handle))).collect()
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::VirtOffset;

    use super::*;

    fn placement(page_base: u32) -> Placement {
        Placement { page_base, pages: 3, origin: VirtOffset(0), code: Vec::new() }
    }

    fn key(inode: u64) -> ObjectKey {
        ObjectKey { inode, ..ObjectKey::default() }
    }

    #[test]
    fn space_is_reused_after_two_rounds() {
        let mut eviction = Eviction::default();
        let handle = Path::new("/proc/self/fd/7");
        assert_eq!(eviction.add_key(handle, key(1)), None);
        assert_eq!(eviction.add_key(handle, key(2)), None);
        assert_eq!(eviction.add_key(handle, key(1)), None);
        assert_eq!(eviction.retire(handle, Some(&placement(10))), [key(1), key(2)]);
        let chosen = eviction.choose(0.1, |_| true, || vec![PathBuf::from("8")]);
        assert_eq!(chosen, [] as [PathBuf; 0], "the space of an evicted table will be free soon");
        assert_eq!(eviction.end_round(), []);
        assert_eq!(eviction.end_round(), [Space { page_base: 10, pages: 3 }]);
        assert_eq!(eviction.end_round(), []);
        assert_eq!(eviction.retire(handle, None), []);
    }

    #[test]
    fn the_first_idle_tables_are_evicted_if_space_is_short() {
        let mut eviction = Eviction::default();
        let idle = || (0..20).map(|number| PathBuf::from(number.to_string())).collect::<Vec<_>>();
        assert_eq!(eviction.choose(LOW, |_| true, idle), [] as [PathBuf; 0]);
        let chosen = eviction.choose(0.1, |handle| handle != Path::new("1"), idle);
        assert_eq!(chosen, [0, 2, 3, 4, 5, 6, 7, 8].map(|number| PathBuf::from(number.to_string())));
        // After a search without result, the next one is made later.
        assert_eq!(eviction.choose(0.1, |_| false, idle), [] as [PathBuf; 0]);
        for _ in 0..PAUSE {
            assert_eq!(eviction.choose(0.1, |_| true, idle), [] as [PathBuf; 0]);
            eviction.end_round();
        }
        assert_eq!(eviction.choose(0.1, |_| true, idle).len(), EVICTED_AT_ONCE);
    }

    #[test]
    fn keys_of_a_file_are_bounded() {
        let mut eviction = Eviction::default();
        let handle = Path::new("/proc/self/fd/7");
        let forgotten: Vec<_> = (0..20).filter_map(|inode| eviction.add_key(handle, key(inode))).collect();
        assert_eq!(forgotten, (0..20 - MAX_KEYS as u64).map(key).collect::<Vec<_>>());
        assert_eq!(eviction.retire(handle, None).len(), MAX_KEYS);
    }

    #[test]
    fn refused_tables_are_built_again() {
        let mut eviction = Eviction::default();
        let object = Arc::new(Object { path: PathBuf::from("/a"), handle: None, build_id: None, root: None });
        let gone = Arc::new(Object { path: PathBuf::from("/b"), handle: None, build_id: None, root: None });
        eviction.add_key(Path::new("7"), key(1));
        eviction.refuse(Path::new("7"), &object);
        eviction.refuse(Path::new("8"), &gone);
        drop(gone);
        let idle = || vec![PathBuf::from("9")];
        assert_eq!(eviction.choose(1.0, |_| true, idle), idle());
        assert!(eviction.is_refused(Path::new("7")) && !eviction.is_refused(Path::new("9")));
        let mut refused = eviction.take_refused();
        refused.sort();
        assert_eq!(refused, [(PathBuf::from("7"), Some(object), vec![key(1)]), (PathBuf::from("8"), None, vec![])]);
        assert_eq!(eviction.choose(1.0, |_| true, idle), [] as [PathBuf; 0]);
    }
}
