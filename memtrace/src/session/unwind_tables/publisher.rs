//! The unwind tables of what the traced processes run: built once an object, told to the kernel half.
//!
//! A kernel that can be asked what a process has mapped is told which object has which table, and asks for those that it
//! meets and does not know; any other is told each process' mappings.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;

use super::builder::Builder;
use crate::eh_frame::{BuildJob, Built, Cache, Code, Full, Layout, Limits, Plan, Table, build_all};
use crate::kernel::OwnMapping;
use crate::kernel::unwind_maps::{
    self as kernel_tables, MAX_BLOBS, MAX_PAGES, MAX_SEGMENTS, ObjectKey, ObjectTable, Segment, mapping,
};
use crate::kernel::{Kernel, KernelError};
use crate::model::{Mapping, Object, Pid, ProcessImage, VirtOffset};
use crate::procfs;

/// So many tables are built at a time: enough for what a process begins with, and few enough to leave it its processors.
const THREADS: usize = 2;

/// The code that the kernel lends to every process, by the name that it has in their mappings.
const VDSO: &str = "[vdso]";

/// Which objects have tables, and where these lie.
pub(super) struct Unwinding {
    layout: Layout,
    /// So many rules has the kernel half been told.
    rules: usize,
    /// By the objects' handles; `None` where there is no table.
    placed: HashMap<PathBuf, Option<Placed>>,
    cache: Option<Arc<Cache>>,
    builder: Builder,
    /// Which objects the kernel half asked for whose tables are being built, by their handles.
    waiting: HashMap<PathBuf, Vec<ObjectKey>>,
    /// Which objects were asked for when a file of another time of change lay there.
    doubted: HashSet<ObjectKey>,
}

/// Where an object's table lies, and what of the object it is about.
struct Placed {
    page_base: u32,
    pages: u32,
    origin: VirtOffset,
    code: Vec<Code>,
}

/// Why a table did not get to the kernel half.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Table(#[from] crate::eh_frame::Error),
    #[error(transparent)]
    Full(#[from] Full),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl Unwinding {
    /// No object has a table yet, but what `cache` has need not be built.
    pub(super) fn new(cache: Option<Cache>) -> Self {
        // Both limits are far below 2^32.
        let limits = Limits { blobs: MAX_BLOBS as u32, pages: MAX_PAGES as u32 };
        let cache = cache.map(Arc::new);
        Self {
            layout: Layout::new(limits),
            rules: 0,
            placed: HashMap::new(),
            builder: Builder::start(cache.clone()),
            cache,
            waiting: HashMap::new(),
            doubted: HashSet::new(),
        }
    }

    /// Tells the kernel half of the code that it lends itself.
    pub(super) fn begin(&mut self, kernel: &mut Kernel) {
        let table = procfs::vdso().map_err(crate::eh_frame::Error::from).and_then(|image| Table::from_bytes(&image));
        let placed = table.map_err(Error::from).and_then(|table| self.place(kernel, &table));
        self.keep(PathBuf::from(VDSO), placed);
        self.publish(kernel, Path::new(VDSO), ObjectKey::default());
    }

    /// From now on stacks of `pid` are walked by the tables of what `image` has mapped. Where that fails they are walked
    /// as before: a stack that is cut is no reason to end a run.
    pub(super) fn update(&mut self, kernel: &mut Kernel, pid: Pid, image: &ProcessImage) {
        self.prepare(kernel, image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()));
        if kernel.tables().finds_mappings() {
            return;
        }
        let mappings: Vec<_> = image.mappings.iter().map(|mapping| self.mapping(mapping)).collect();
        if let Err(error) = kernel.tables().set_process(pid, &mappings) {
            log::debug!("process {pid}: {error}");
        }
    }

    /// Has the tables of these objects in place before anybody maps them.
    pub(super) fn prepare<'a>(&mut self, kernel: &mut Kernel, objects: impl Iterator<Item = &'a Arc<Object>>) {
        let new = self.wanted(objects);
        let handles: Vec<_> = new.iter().filter_map(|wanted| wanted.object.handle.clone()).collect();
        let cache = self.cache.clone();
        build_all(new, THREADS, cache.as_deref(), |built| self.take(kernel, built));
        if !kernel.tables().finds_mappings() {
            return;
        }
        for handle in &handles {
            // Where that cannot be known, the kernel half asks.
            if let Some(key) = key(kernel, handle) {
                self.publish(kernel, handle, key);
            }
        }
    }

    /// The kernel half asks for the table of an object, which it knows as `key`; `object` is what lies there now.
    pub(super) fn want(&mut self, kernel: &mut Kernel, key: ObjectKey, object: Option<Arc<Object>>) {
        let Some(object) = object else {
            // Whoever maps it next may be asked again.
            kernel.tables().forget_object(key);
            return;
        };
        let Some(handle) = object.handle.clone() else {
            // It would be asked for with each stack. What has no file has its table by its name, if it has one.
            self.publish(kernel, &object.path, key);
            return;
        };
        // Another object may lie there by now, the table of which would give wrong stacks wherever this one is mapped. A
        // file system that lies over others may say another time than theirs, but will do so again.
        if !changed_when(&handle, key) && self.doubted.insert(key) {
            kernel.tables().forget_object(key);
            return;
        }
        // A program is asked for before it is mapped, by the inode that a file system over others gives it.
        let mapped_as = self::key(kernel, &handle).filter(|other| *other != key);
        self.build(kernel, object, handle, [key].into_iter().chain(mapped_as));
    }

    /// Has the tables of objects made that somebody will map soon.
    pub(super) fn foresee(&mut self, kernel: &mut Kernel, objects: &[Arc<Object>]) {
        for object in objects {
            if let Some(handle) = object.handle.clone()
                && !self.placed.contains_key(&handle)
            {
                let key = key(kernel, &handle);
                self.build(kernel, Arc::clone(object), handle, key.into_iter());
            }
        }
    }

    /// The kernel half, which knows the object as each of `keys`, is told of the table now or when it is built.
    fn build(
        &mut self,
        kernel: &mut Kernel,
        object: Arc<Object>,
        handle: PathBuf,
        keys: impl Iterator<Item = ObjectKey>,
    ) {
        if self.placed.contains_key(&handle) {
            keys.for_each(|key| self.publish(kernel, &handle, key));
            return;
        }
        match self.waiting.entry(handle) {
            Entry::Occupied(mut waiting) => waiting.get_mut().extend(keys),
            Entry::Vacant(new) => {
                new.insert(keys.collect());
                self.builder.want(object);
            }
        }
    }

    /// Tells the kernel half of the tables that have been built since.
    pub(super) fn take_built(&mut self, kernel: &mut Kernel) {
        while let Some(built) = self.builder.next() {
            let handle = built.object.handle.clone().unwrap_or_default();
            self.take(kernel, built);
            for key in self.waiting.remove(&handle).unwrap_or_default() {
                self.publish(kernel, &handle, key);
            }
        }
    }

    /// Tells when there is something to take.
    pub(super) fn ready(&self) -> Arc<Notify> {
        self.builder.ready()
    }

    fn publish(&self, kernel: &mut Kernel, handle: &Path, key: ObjectKey) {
        let placed = self.placed.get(handle).and_then(Option::as_ref);
        let table = placed.map_or_else(without_table, Placed::object_table);
        if let Err(error) = kernel.tables().set_object(key, table) {
            log::debug!("{}: {error}", handle.display());
        }
    }

    /// The objects that have not been looked at yet, each once.
    fn wanted<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>>) -> Vec<BuildJob> {
        let new: HashMap<_, _> = objects
            .filter_map(|object| object.handle.as_ref().map(|handle| (handle, object)))
            .filter(|(handle, _)| !self.placed.contains_key(*handle))
            .collect();
        new.into_values().map(|object| BuildJob { object: Arc::clone(object), users: 1 }).collect()
    }

    fn take(&mut self, kernel: &mut Kernel, Built { object, table }: Built) {
        let placed = table.map_err(Error::from).and_then(|table| self.place(kernel, &table));
        if let Some(handle) = object.handle.clone() {
            log::debug!("{} is {}", object.path.display(), handle.display());
            self.keep(handle, placed);
        }
    }

    fn keep(&mut self, handle: PathBuf, placed: Result<Placed, Error>) {
        match &placed {
            Ok(placed) => log::debug!("{}: an unwind table of {} pages", handle.display(), placed.pages),
            Err(error) => log::debug!("{}: no unwind table: {error}", handle.display()),
        }
        self.placed.insert(handle, placed.ok());
    }

    fn place(&mut self, kernel: &mut Kernel, table: &Table) -> Result<Placed, Error> {
        let plan = self.layout.place(table);
        let rules = self.layout.rules().rules();
        let tables = kernel.tables();
        // They stay even where the rest of their table has no room. There are far fewer than 2^32.
        tables.write_rules(self.rules as u32, &rules[self.rules..])?;
        self.rules = rules.len();
        let Plan { chunks, page_base, pages, origin, .. } = plan?;
        for chunk in &chunks {
            tables.write_rows(chunk.blob, chunk.offset, &chunk.rows)?;
        }
        tables.write_pages(page_base, &pages)?;
        Ok(Placed { page_base, pages: table.pages(), origin, code: table.code().to_vec() })
    }

    /// The mapping as the kernel half reads it.
    fn mapping(&self, mapping: &Mapping) -> kernel_tables::Mapping {
        let (begin, end) = (mapping.start.0, mapping.end.0);
        let kind = |kind: u8| u32::from(kind) << 24;
        let without = |pages_and_kind| kernel_tables::Mapping { begin, end, pages_and_kind, ..Default::default() };
        let Some(object) = &mapping.object else { return without(kind(mapping::GENERATED)) };
        match self.placed(object).and_then(|placed| Some((placed, placed.bias(mapping)?))) {
            Some((placed, bias)) => kernel_tables::Mapping {
                begin,
                end,
                bias,
                page_base: placed.page_base,
                pages_and_kind: placed.pages | kind(mapping::TABLE),
            },
            None => without(kind(mapping::UNUSABLE)),
        }
    }

    fn placed(&self, object: &Object) -> Option<&Placed> {
        // Only what has no file is known by its name.
        let handle = object.handle.as_deref().or_else(|| Some(&*object.path).filter(|path| *path == Path::new(VDSO)));
        self.placed.get(handle?)?.as_ref()
    }
}

/// The file as the kernel knows it when it is mapped. No file shows user space the inode and the device of what a file system
/// that lies over others has mapped of them.
fn key(kernel: &mut Kernel, handle: &Path) -> Option<ObjectKey> {
    let mapping = OwnMapping::of(handle).inspect_err(|error| log::debug!("{}: {error}", handle.display())).ok()?;
    kernel.object_at(mapping.start())
}

/// Whether the file was last changed when the kernel says of the object that it was.
fn changed_when(handle: &Path, object: ObjectKey) -> bool {
    let is_then =
        |file: fs::Metadata| file.ctime() == object.changed_s && file.ctime_nsec() == i64::from(object.changed_ns);
    fs::metadata(handle).is_ok_and(is_then)
}

/// What is said of an object that has no table.
fn without_table() -> ObjectTable {
    ObjectTable { pages_and_kind: u32::from(mapping::UNUSABLE) << 24, ..ObjectTable::default() }
}

impl Placed {
    /// As the kernel half reads it.
    fn object_table(&self) -> ObjectTable {
        let mut segments = [Segment::default(); MAX_SEGMENTS];
        for (segment, code) in segments.iter_mut().zip(&self.code) {
            let offset = code.offset.0;
            *segment = Segment {
                offset,
                end: offset.saturating_add(code.size),
                shift: code.address.0.wrapping_sub(offset).wrapping_sub(self.origin.0),
            };
        }
        let pages_and_kind = self.pages | u32::from(mapping::TABLE) << 24;
        ObjectTable { page_base: self.page_base, pages_and_kind, segments }
    }

    /// What to subtract from an address in `mapping` to get its distance from the first page; `None` where nothing of the
    /// object's code is mapped there.
    ///
    /// A mapping begins where a page does, its code perhaps behind that, so the first part that lies in the mapping is
    /// asked rather than the one that holds its first byte.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let first = mapping.offset.0;
        let behind = first.saturating_add(mapping.end.0.saturating_sub(mapping.start.0));
        let is_mapped = |code: &&Code| code.offset.0 < behind && first < code.offset.0.saturating_add(code.size);
        let code = self.code.iter().find(is_mapped)?;
        let address = code.address.0.wrapping_sub(code.offset.0).wrapping_add(first);
        Some(mapping.start.0.wrapping_sub(address).wrapping_add(self.origin.0))
    }
}

#[cfg(test)]
mod tests;
