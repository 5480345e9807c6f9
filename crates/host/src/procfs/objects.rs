//! Store of object files. Each file stays open as long as its object is used. Therefore it can be read after the target
//! has exited or deleted it, and from another mount namespace.

mod open;
mod open_files;
mod roots;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_model::{AbsAddr, BuildId, Object, Pid};

use super::maps::{Inode, MapsEntry};
use super::own_process::descriptor_path;
use super::process::inside_root;
pub use open::Opened;
use open_files::{Need, OpenFiles};
use roots::Roots;

/// Maximum number of objects in an index. Further objects are created again at each request.
const MAX_OBJECTS: usize = 1 << 16;
/// Maximum number of open root directories.
const MAX_ROOTS: usize = 64;

/// Store of object files: one [`Object`] for each inode and path, and the open files of the handles.
///
/// [`Object::handle`] is valid until [`Objects::close_unused`] returns it.
#[derive(Debug)]
pub struct Objects {
    /// Objects by the inode in `maps`. On overlayfs and btrfs, it differs from the inode of stat(2).
    by_mapping: HashMap<Inode, Arc<Object>>,
    /// Objects by the inode of stat(2).
    by_stat: HashMap<Inode, Arc<Object>>,
    /// Objects by handle and path. One file can have several names, such as hard links and bind mounts.
    by_name: HashMap<(PathBuf, PathBuf), Arc<Object>>,
    /// Objects by build ID and path. Mmap events can arrive after the process has exited and the file was deleted.
    by_build_id: HashMap<(BuildId, PathBuf), Arc<Object>>,
    /// Objects of code without a file, by name.
    nameless: HashMap<PathBuf, Arc<Object>>,
    files: OpenFiles,
    roots: Roots,
}

impl Default for Objects {
    fn default() -> Self {
        Self::new()
    }
}

impl Objects {
    /// Creates a store that uses at most half of memtrace's file descriptors.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(open::descriptor_limit() / 2)
    }

    /// Creates a store with at most `max_files` open files. Further objects have no handle.
    #[must_use]
    pub fn with_limit(max_files: usize) -> Self {
        Self {
            by_mapping: HashMap::new(),
            by_stat: HashMap::new(),
            by_name: HashMap::new(),
            by_build_id: HashMap::new(),
            nameless: HashMap::new(),
            files: OpenFiles::new(max_files),
            roots: Roots::new(MAX_ROOTS),
        }
    }

    /// Sets the limit of open files to `most`, but to at most half of memtrace's file descriptors.
    pub fn limit_files(&mut self, most: usize) {
        self.files.limit(most.min(open::descriptor_limit() / 2));
    }

    /// Returns the handles of all open files, least recently used first.
    pub fn handles(&self) -> Vec<PathBuf> {
        self.files.handles()
    }

    /// Closes files of objects that no process image and no other part of memtrace uses. `named` lists the objects that
    /// are kept only for the names of functions, once for each reference. Closes:
    ///
    /// - if the limit is near, the least recently used files, beginning with files that are not in `named`;
    /// - if there is no room for another root directory, the files in root directories without a used file;
    /// - if `with_deleted` is true or many files were opened, deleted files. A limited number of deleted files in
    ///   `named` stays open.
    ///
    /// Returns the handles of the closed files. These handles can belong to other files afterwards.
    pub fn close_unused<'a>(
        &mut self,
        with_deleted: bool,
        named: impl Iterator<Item = &'a Arc<Object>>,
    ) -> Vec<PathBuf> {
        let needs_root = self.roots.take_refused();
        let checks_deleted = with_deleted || self.files.may_have_deleted();
        if !self.files.is_due() && !needs_root && !checks_deleted {
            return Vec::new();
        }
        let mut names: HashMap<*const Object, usize> = HashMap::new();
        named.for_each(|object| *names.entry(Arc::as_ptr(object)).or_default() += 1);
        let mut references: HashMap<*const Object, (usize, &Arc<Object>)> = HashMap::new();
        let by_identity = self.by_mapping.values().chain(self.by_stat.values()).chain(self.by_build_id.values());
        for object in by_identity.chain(self.by_name.values()) {
            references.entry(Arc::as_ptr(object)).or_insert((0, object)).0 += 1;
        }
        let needs = references.into_iter().map(|(object, (own, file))| {
            let others = Arc::strong_count(file) - own;
            let need = match (others, names.get(&object).copied().unwrap_or(0)) {
                (0, _) => Need::None,
                (others, names) if others <= names => Need::Names,
                _ => Need::Use,
            };
            (file, need)
        });
        let needs: Vec<_> = needs.collect();
        let needed = needs.iter().filter(|(_, need)| *need > Need::None);
        let needed_roots: HashSet<_> = needed.filter_map(|(object, _)| object.root.as_ref()).collect();
        let is_abandoned =
            |object: &Object| needs_root && object.root.as_ref().is_some_and(|root| !needed_roots.contains(root));
        let (mut need_of, mut abandoned) = (HashMap::new(), HashSet::new());
        for (object, need) in &needs {
            let Some(handle) = object.handle.as_deref() else { continue };
            // The file of a handle can have several names. Its strongest need counts.
            let known = need_of.entry(handle).or_insert(*need);
            *known = (*known).max(*need);
            if is_abandoned(object) {
                abandoned.insert(handle);
            }
        }
        let need_of = |handle: &Path| need_of.get(handle).copied().unwrap_or(Need::None);
        let closed = self.files.close(need_of, |handle| abandoned.contains(handle), checks_deleted);
        let handles: HashSet<&PathBuf> = closed.iter().collect();
        let is_open = |object: &Arc<Object>| match &object.handle {
            Some(handle) => !handles.contains(handle),
            // An object without a handle is created again when it is mapped again.
            None => Arc::strong_count(object) > 1,
        };
        self.by_mapping.retain(|_, object| is_open(object));
        self.by_stat.retain(|_, object| is_open(object));
        self.by_name.retain(|_, object| is_open(object));
        self.by_build_id.retain(|_, object| is_open(object));
        closed
    }

    /// Opens the closed file of an object again, if a file with the object's build ID is still at its path. Returns the
    /// file and its handle.
    pub fn reopen(object: &Object) -> Option<(File, PathBuf)> {
        let file = open::again(object)?.file;
        let handle = descriptor_path(&file);
        Some((file, handle))
    }

    /// Returns the object of an mmap event. `build_id`, or `device_inode` with a device encoded like `st_dev`,
    /// identifies its file. `addresses` are the start and the end of the mapping.
    ///
    /// Without an identity, the object has no handle, because a wrong file would give wrong symbols. The object has no handle
    /// either if the process has exited, `path` now leads to another file, and the store does not have the file open.
    pub fn resolve(
        &mut self,
        pid: Pid,
        path: &Path,
        addresses: Option<(AbsAddr, AbsAddr)>,
        build_id: Option<BuildId>,
        device_inode: Option<(u64, u64)>,
    ) -> Arc<Object> {
        if Object::is_kernel_code(path) {
            return self.nameless(path);
        }
        let inode = device_inode.map(|(device, inode)| Inode { device, inode });
        if let Some(known) = inode.and_then(|inode| self.known(inode, path)) {
            return self.named(known, RootOf::Process(pid), path);
        }
        let is_expected = |opened: &Opened| {
            inode == Some(opened.inode)
                || build_id.as_ref().is_some_and(|build_id| open::has_build_id(&opened.file, build_id))
        };
        // Try the mapping first: the path can lead to another file by now, even to one with the same build ID.
        let mapped = addresses.and_then(|(start, end)| open::by_addresses(pid, start, end)).filter(is_expected);
        let opened = mapped.or_else(|| open::by_path(pid, path, inode, build_id.as_ref()));
        let open = || match (inode, &build_id) {
            (Some(inode), _) => self.by_stat.get(&inode),
            (None, Some(build_id)) => self.by_build_id.get(&(build_id.clone(), path.to_owned())),
            (None, None) => None,
        };
        if opened.is_none()
            && let Some(open) = open().cloned()
        {
            self.files.touch(&open);
            return self.named(open, RootOf::Process(pid), path);
        }
        let object = self.intern(RootOf::Process(pid), path, opened, build_id);
        if let Some(inode) = inode {
            remember(&mut self.by_mapping, inode, &object);
        }
        object
    }

    /// Returns the object of a line of `maps`.
    pub fn mapped(&mut self, pid: Pid, entry: &MapsEntry, inode: Inode) -> Arc<Object> {
        if let Some(known) = self.known(inode, &entry.path) {
            if known.path == entry.path {
                return known;
            }
            return self.named(known, RootOf::Process(pid), &inside_root(pid, &entry.path));
        }
        let opened = open::by_mapping(pid, entry)
            .or_else(|| open::by_path(pid, &open::without_deleted(&entry.path), Some(inode), None));
        let object = self.intern(RootOf::Process(pid), &inside_root(pid, &entry.path), opened, None);
        remember(&mut self.by_mapping, inode, &object);
        object
    }

    /// Returns the object of an open file with the path `path` in the root directory `root`.
    pub fn opened(&mut self, root: &Path, path: &Path, opened: Opened) -> Arc<Object> {
        self.intern(RootOf::Directory(root), path, Some(opened), None)
    }

    /// Returns the object of an open file with the path `path` in a process's root directory.
    pub(crate) fn opened_by(&mut self, pid: Pid, path: &Path, opened: Opened) -> Arc<Object> {
        self.intern(RootOf::Process(pid), path, Some(opened), None)
    }

    /// Returns the object of code without a file.
    pub fn nameless(&mut self, name: &Path) -> Arc<Object> {
        let object = || Arc::new(Object { path: name.to_owned(), handle: None, build_id: None, root: None });
        Arc::clone(self.nameless.entry(name.to_owned()).or_insert_with(object))
    }

    /// Returns the stored object of an inode. The inode of an object without a handle may have been reused, so the path must
    /// match too. If the store has room for a handle, such an object is not returned, so that it is created again with a
    /// handle.
    fn known(&mut self, inode: Inode, path: &Path) -> Option<Arc<Object>> {
        let object = self.by_mapping.get(&inode)?;
        let valid = object.handle.is_some() || self.files.is_full() && object.path == path;
        self.files.touch(object);
        valid.then(|| Arc::clone(object))
    }

    /// Returns the object of an open file, or creates one.
    fn intern(
        &mut self,
        root: RootOf<'_>,
        path: &Path,
        opened: Option<Opened>,
        build_id: Option<BuildId>,
    ) -> Arc<Object> {
        let known = opened.as_ref().and_then(|opened| self.by_stat.get(&opened.inode));
        if let Some(known) = known.cloned() {
            self.files.touch(&known);
            return self.named(known, root, path);
        }
        let root = self.root_directory(root);
        let Some(opened) = opened else {
            return Arc::new(Object { path: path.to_owned(), handle: None, build_id, root });
        };
        let inode = opened.inode;
        let object = Arc::new(Object {
            path: if opened.deleted { open::without_deleted(path) } else { path.to_owned() },
            build_id: open::read_build_id(&opened.file).or(build_id),
            handle: self.files.keep(opened.into_handle()),
            root,
        });
        // The inode of a file that is not kept open can be reused.
        if let Some(handle) = &object.handle {
            remember(&mut self.by_stat, inode, &object);
            remember(&mut self.by_name, (handle.clone(), object.path.clone()), &object);
            if let Some(build_id) = &object.build_id {
                remember(&mut self.by_build_id, (build_id.clone(), object.path.clone()), &object);
            }
        }
        object
    }

    /// Returns the object with the file of `known` and the name `path`. Processes can map a file by several hard links.
    fn named(&mut self, known: Arc<Object>, root: RootOf<'_>, path: &Path) -> Arc<Object> {
        let is_named = |path: &Path| known.path == path;
        let Some(handle) = known.handle.clone().filter(|_| !is_named(path) && !is_named(&open::without_deleted(path)))
        else {
            return known;
        };
        let key = (handle, path.to_owned());
        if let Some(named) = self.by_name.get(&key) {
            return Arc::clone(named);
        }
        let root = self.root_directory(root);
        let named = Arc::new(Object { path: path.to_owned(), root, ..(*known).clone() });
        remember(&mut self.by_name, key, &named);
        named
    }

    fn root_directory(&mut self, root: RootOf<'_>) -> Option<Arc<Path>> {
        match root {
            RootOf::Process(pid) => self.roots.of_process(pid),
            RootOf::Directory(root) => Some(self.roots.of_path(root)),
        }
    }
}

/// Root directory of an object's path.
#[derive(Clone, Copy)]
enum RootOf<'a> {
    Process(Pid),
    Directory(&'a Path),
}

fn remember<K: Eq + Hash>(index: &mut HashMap<K, Arc<Object>>, key: K, object: &Arc<Object>) {
    if index.len() < MAX_OBJECTS {
        index.insert(key, Arc::clone(object));
    }
}

#[cfg(test)]
mod tests;
