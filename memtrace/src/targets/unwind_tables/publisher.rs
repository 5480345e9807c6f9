//! Publishes unwind tables to the BPF programs. A table is built once for each object. The BPF programs request missing
//! tables.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use memtrace_host::kernel::Kernel;
use memtrace_host::kernel::unwind_maps::{ObjectKey, ObjectTable};
use memtrace_host::procfs;
use memtrace_host::target_files::{facts_at, open_object};
use memtrace_host::unwind_tables::{BuildJob, Built, TableCache, build_all};
use memtrace_model::{Bytes, Object, printable};
use memtrace_object::eh_frame::{Limits, Table};
use tokio::sync::Notify;

use super::builder::{Builder, Progress};
use super::eviction::{Eviction, Space};
use super::placed_tables::{PlacedTables, VDSO};
use super::placement::{Placement, generated, without_table};
use crate::run_kit::start_progress::StartProgress;
use crate::targets::bounded_set::BoundedSet;

/// Number of threads that build tables before events count. They are enough for the objects of one process, and leave
/// processors for the process itself.
const THREADS: usize = 2;

/// Maximum size, on disk, of the tables that are loaded before a command runs. They take 16 MiB in the BPF maps, and a
/// tenth of a second to load. This is enough for the code of twenty compilers.
const MAX_PRELOADED_BYTES: u64 = 32 << 20;

/// Approximate ratio of the size of a file to the size of its stored table.
const FILE_BYTES_OF_TABLE: u64 = 8;

/// Maximum number of remembered rejected requests. At this number, all are forgotten, and an object
/// may be rejected twice.
const MAX_REJECTED: usize = 1 << 16;

/// Publishes unwind tables.
pub(super) struct TablePublisher {
    tables: PlacedTables,
    cache: Option<Arc<TableCache>>,
    builder: Builder,
    /// Keys of the objects with a table in construction, by object handle.
    waiting: HashMap<PathBuf, Vec<ObjectKey>>,
    eviction: Eviction,
    /// Keys of rejected requests: the file at the path had another change time than the requested object.
    rejected: BoundedSet<ObjectKey>,
}

impl TablePublisher {
    /// Creates a publisher. `frame_data`: limit of the call frame information of the tables in
    /// construction.
    pub(super) fn new(cache: Option<TableCache>, limits: Limits, frame_data: Bytes) -> Self {
        let cache = cache.map(Arc::new);
        Self {
            tables: PlacedTables::new(limits),
            builder: Builder::start(cache.clone(), frame_data),
            cache,
            waiting: HashMap::new(),
            eviction: Eviction::default(),
            rejected: BoundedSet::new(MAX_REJECTED),
        }
    }

    /// Publishes the table of the vDSO.
    pub(super) fn publish_vdso(&mut self, kernel: &mut Kernel) {
        let table =
            procfs::vdso().map_err(memtrace_object::eh_frame::Error::from).and_then(|image| Table::from_bytes(&image));
        if let Err(error) = self.tables.insert(kernel.unwind_maps(), PathBuf::from(VDSO), table) {
            log::debug!("{VDSO}: no unwind table: {error}");
        }
        self.publish(kernel, Path::new(VDSO), ObjectKey::default());
    }

    /// Builds and publishes the tables of `objects` before it returns. Errors are logged: stacks through an object
    /// without a table are cut, and the report counts them.
    pub(super) fn build_now<'a>(
        &mut self,
        kernel: &mut Kernel,
        objects: impl Iterator<Item = &'a Arc<Object>>,
        progress: &StartProgress,
    ) {
        let jobs = self.jobs(objects);
        let handles: Vec<_> = jobs.iter().filter_map(|job| job.object.handle.clone()).collect();
        let cache = self.cache.clone();
        let (mut done, tables) = (0, jobs.len());
        progress.set(done, tables);
        build_all(jobs, THREADS, cache.as_deref(), |built| {
            self.insert_built(kernel, built);
            done += 1;
            progress.set(done, tables);
        });
        for handle in &handles {
            if self.eviction.is_refused(handle) {
                continue;
            }
            // If no key is known, the BPF programs request the object later.
            if let Some(key) = kernel.file_id(handle) {
                self.publish(kernel, handle, key);
            }
        }
    }

    /// Publishes the tables of `objects` in order, except the tables that would exceed [`MAX_PRELOADED_BYTES`]. Builds
    /// the tables that the cache lacks, because an earlier run did not wait for them.
    pub(super) fn preload(&mut self, kernel: &mut Kernel, objects: &[Arc<Object>], progress: &StartProgress) {
        let Some(cache) = self.cache.clone() else { return };
        let mut left = MAX_PRELOADED_BYTES;
        let chosen = objects.iter().filter(|object| {
            let file = open_object(object).ok();
            let bytes = file.and_then(|file| {
                let stored = cache.stored_bytes(&file, object.build_id.as_ref());
                stored.or_else(|| Some(file.metadata().ok()?.len() / FILE_BYTES_OF_TABLE))
            });
            let rest = bytes.and_then(|bytes| left.checked_sub(bytes));
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        let chosen: Vec<_> = chosen.collect();
        self.build_now(kernel, chosen.into_iter(), progress);
    }

    /// Returns the objects that `command` has used in earlier runs.
    pub(super) fn used_objects(&self, command: &File) -> Vec<PathBuf> {
        self.cache.as_ref().map_or_else(Vec::new, |cache| cache.used_objects(command))
    }

    /// Records the objects that `command` has used in this run.
    pub(super) fn record_used_objects<'a>(&self, command: &File, objects: impl IntoIterator<Item = &'a Path>) {
        if let Some(cache) = &self.cache {
            cache.record_used_objects(command, objects);
        }
    }

    /// Answers a request of the BPF programs for the object `key`. `object`: the object that the requesting process maps at the
    /// requested addresses now, if any.
    pub(super) fn request(&mut self, kernel: &mut Kernel, key: ObjectKey, object: Option<Arc<Object>>) {
        let Some(object) = object else {
            // The request is forgotten. If another process maps the object, the BPF programs request the object again.
            kernel.unwind_maps().forget_object(key);
            return;
        };
        let Some(handle) = object.handle.clone() else {
            // Code without a file has its table under its name, or no table. The entry is published in both cases.
            // Without an entry, the BPF programs would repeat the request with each stack.
            self.publish(kernel, &object.path, key);
            return;
        };
        if procfs::is_generated_code(&object) {
            set_object(kernel, key, generated(), &object.path);
            return;
        }
        // If another file has taken the path, its table would give wrong stacks. A stacked file system can report a change time
        // of its own in each request, so the second request with a key is accepted.
        if !has_change_time(&handle, key) && self.rejected.insert(key) {
            kernel.unwind_maps().forget_object(key);
            return;
        }
        // An executable is requested before it is mapped. This request has the inode number of the stacked file system,
        // so the table gets the key of the mapped file too.
        let mapped_as = kernel.file_id(&handle).filter(|other| *other != key);
        self.build_later(kernel, object, handle, [key].into_iter().chain(mapped_as));
    }

    /// Builds unwind tables in the background, for objects that are likely to be needed.
    pub(super) fn prefetch(&mut self, kernel: &mut Kernel, objects: &[Arc<Object>]) {
        for object in objects {
            if let Some(handle) = object.handle.clone()
                && !self.tables.contains(&handle)
            {
                let key = kernel.file_id(&handle);
                self.build_later(kernel, Arc::clone(object), handle, key.into_iter());
            }
        }
    }

    /// Publishes the object's table under each of `keys`. If the table does not exist yet, queues its construction, and
    /// publishes the table when it is built.
    fn build_later(
        &mut self,
        kernel: &mut Kernel,
        object: Arc<Object>,
        handle: PathBuf,
        keys: impl Iterator<Item = ObjectKey>,
    ) {
        if self.tables.contains(&handle) {
            keys.for_each(|key| self.publish(kernel, &handle, key));
            return;
        }
        match self.waiting.entry(handle) {
            Entry::Occupied(mut waiting) => waiting.get_mut().extend(keys),
            Entry::Vacant(new) => {
                new.insert(keys.collect());
                self.builder.queue(object);
            }
        }
    }

    /// Publishes the tables that the background thread has indexed or finished.
    pub(super) fn publish_built(&mut self, kernel: &mut Kernel) {
        while let Some(progress) = self.builder.next() {
            self.publish_one(kernel, progress);
        }
    }

    /// Waits until the background thread has indexed or finished the next table, and publishes it. Returns false if
    /// there was none until `deadline`.
    pub(super) fn wait_for_one(&mut self, kernel: &mut Kernel, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let builds = self.waiting.keys().any(|handle| !self.eviction.is_refused(handle));
        let progress = if builds { self.builder.wait(left) } else { None };
        progress.map(|progress| self.publish_one(kernel, progress)).is_some()
    }

    /// Waits until no table of `objects` is in construction, or until `deadline`.
    pub(super) fn wait_for(&mut self, kernel: &mut Kernel, objects: &[Arc<Object>], deadline: Instant) {
        let is_waiting = |waiting: &HashMap<PathBuf, Vec<ObjectKey>>| {
            objects.iter().any(|object| object.handle.as_ref().is_some_and(|handle| waiting.contains_key(handle)))
        };
        while is_waiting(&self.waiting) && self.wait_for_one(kernel, deadline) {}
    }

    fn publish_one(&mut self, kernel: &mut Kernel, progress: Progress) {
        match progress {
            Progress::Indexed(object, descriptions) => {
                let handle = object.handle.clone().unwrap_or_default();
                if self.tables.insert_partial(kernel.unwind_maps(), &handle, descriptions) {
                    // The keys stay in `waiting`, because the table is not finished.
                    for key in self.waiting.get(&handle).cloned().unwrap_or_default() {
                        self.publish(kernel, &handle, key);
                    }
                }
            }
            Progress::Built(built) => {
                let handle = built.object.handle.clone().unwrap_or_default();
                self.insert_built(kernel, built);
                if !self.eviction.is_refused(&handle) {
                    for key in self.waiting.remove(&handle).unwrap_or_default() {
                        self.publish(kernel, &handle, key);
                    }
                }
            }
        }
    }

    /// Returns the notification that is sent when [`Self::publish_built`] has a table to publish.
    pub(super) fn ready(&self) -> Arc<Notify> {
        self.builder.ready()
    }

    /// Evicts the tables of `closed` objects. If space is short, evicts the tables of the first few `idle` objects too. No
    /// process may have mapped an idle object. All mmap events up to now must be applied.
    pub(super) fn evict(
        &mut self,
        kernel: &mut Kernel,
        closed: &HashSet<PathBuf>,
        idle: impl FnOnce() -> Vec<PathBuf>,
    ) {
        let freed = self.eviction.end_round();
        if !freed.is_empty() {
            self.release(kernel, &freed);
        }
        for handle in closed {
            self.retire(kernel, handle);
        }
        let has_table = |handle: &PathBuf| self.tables.has_whole_table(handle);
        let chosen = self.eviction.choose(self.tables.free_share(), has_table, idle);
        chosen.iter().for_each(|handle| self.retire(kernel, handle));
        if self.eviction.is_exhausted() {
            self.publish_refused(kernel);
        }
    }

    fn retire(&mut self, kernel: &mut Kernel, handle: &Path) {
        let placement = self.tables.remove(handle);
        if placement.is_some() {
            log::debug!("{}: its unwind table is evicted", printable(&handle));
        }
        let keys = self.eviction.retire(handle, placement.as_ref());
        keys.into_iter().for_each(|key| kernel.unwind_maps().forget_object(key));
    }

    /// Frees the space of evicted tables, and builds the tables that found no space before.
    fn release(&mut self, kernel: &mut Kernel, freed: &[Space]) {
        if let Err(error) = kernel.unwind_maps().wait() {
            log::debug!("the space of evicted unwind tables is lost: {error}");
            return;
        }
        freed.iter().for_each(|space| self.tables.release(*space));
        for (handle, object, keys) in self.eviction.take_refused() {
            self.tables.remove(&handle);
            let waiting = self.waiting.remove(&handle).unwrap_or_default();
            if let Some(object) = object {
                self.build_later(kernel, object, handle, waiting.into_iter().chain(keys));
            }
        }
    }

    /// Publishes an entry without a table for each object without space for its table. Until then, stacks through the object
    /// are copied.
    fn publish_refused(&mut self, kernel: &mut Kernel) {
        for handle in self.eviction.refused() {
            self.tables.insert_without_table(handle.clone());
            for key in self.waiting.remove(&handle).unwrap_or_default() {
                self.publish(kernel, &handle, key);
            }
        }
    }

    fn publish(&mut self, kernel: &mut Kernel, handle: &Path, key: ObjectKey) {
        if let Some(old) = self.eviction.add_key(handle, key) {
            kernel.unwind_maps().forget_object(old);
        }
        let table = self.tables.get(handle).map_or_else(without_table, Placement::object_table);
        set_object(kernel, key, table, handle);
    }

    /// Returns one build job for each distinct object of `objects` that has no entry yet.
    fn jobs<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>>) -> Vec<BuildJob> {
        let new: HashMap<_, _> = objects
            .filter_map(|object| object.handle.as_ref().map(|handle| (handle, object)))
            .filter(|(handle, _)| !self.tables.contains(handle))
            .collect();
        new.into_values().map(|object| BuildJob { object: Arc::clone(object), users: 1 }).collect()
    }

    fn insert_built(&mut self, kernel: &mut Kernel, Built { object, table }: Built) {
        let Some(handle) = object.handle.clone() else { return };
        log::debug!("{} is {}", printable(&object.path), printable(&handle));
        if self.tables.insert(kernel.unwind_maps(), handle.clone(), table).is_err() {
            self.eviction.refuse(&handle, &object);
            self.waiting.entry(handle).or_default();
        }
    }

    pub(super) const fn tables(&mut self) -> &mut PlacedTables {
        &mut self.tables
    }
}

/// Publishes `table` under `key`. `path` names the object in messages.
fn set_object(kernel: &mut Kernel, key: ObjectKey, table: ObjectTable, path: &Path) {
    if let Err(error) = kernel.unwind_maps().set_object(key, table) {
        log::debug!("{}: {error}", printable(path));
    }
}

/// Returns true if the file has the change time of `key`.
fn has_change_time(handle: &Path, key: ObjectKey) -> bool {
    facts_at(handle).is_ok_and(|facts| facts.changed == (key.changed_s, key.changed_ns))
}
