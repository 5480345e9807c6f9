//! The store of object files: each is opened when first seen and stays open, so that it can still be read when the
//! target has ended, has deleted it, or lives in another mount namespace.

mod open;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::maps::{self, Entry, Inode};
use super::own_process::descriptor_path;
use super::process::inside_root;
use crate::elf::Elf;
use crate::model::{BuildId, Object, Pid};
pub(crate) use open::{Opened, regular};

/// The most objects that are remembered; beyond, an object is made anew each time it is asked for.
const MAX_OBJECTS: usize = 1 << 16;
/// The most root directories that are kept open.
const MAX_ROOTS: usize = 64;

/// Every object file that was seen, one [`Object`] an inode, and the open files behind [`Object::handle`].
///
/// The handles can be opened as long as the store lives.
#[derive(Debug)]
pub(crate) struct Objects {
    /// By the inode that the kernel names in `maps`. On overlayfs and btrfs it is not the one that `stat` names.
    by_mapping: HashMap<Inode, Arc<Object>>,
    /// By the inode that `stat` names.
    by_stat: HashMap<Inode, Arc<Object>>,
    /// Code without a file, by its name.
    nameless: HashMap<PathBuf, Arc<Object>>,
    files: Vec<File>,
    roots: HashMap<(PathBuf, Inode), File>,
    max_files: usize,
}

impl Default for Objects {
    fn default() -> Self {
        Self::new()
    }
}

impl Objects {
    /// A store that keeps at most half as many files open as the process may open.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::with_limit(open::descriptor_limit() / 2)
    }

    /// A store that keeps at most `max_files` files open; further objects have no handle.
    #[must_use]
    pub(crate) fn with_limit(max_files: usize) -> Self {
        Self {
            by_mapping: HashMap::new(),
            by_stat: HashMap::new(),
            nameless: HashMap::new(),
            files: Vec::new(),
            roots: HashMap::new(),
            max_files,
        }
    }

    /// The object of a mapping that the kernel has announced, told by its build-id or by its device, as `st_dev` of
    /// `stat` encodes it, and inode.
    ///
    /// Where neither is given, or the file at `path` is another one by now, the object has no handle: a wrong file
    /// would give wrong names.
    pub(crate) fn resolve(
        &mut self,
        pid: Pid,
        path: &Path,
        build_id: Option<BuildId>,
        device_inode: Option<(u64, u64)>,
    ) -> Arc<Object> {
        if maps::is_kernel_code(path) {
            return self.nameless(path);
        }
        let inode = device_inode.map(|(device, inode)| Inode { device, inode });
        if let Some(known) = inode.and_then(|inode| self.known(inode, path)) {
            return known;
        }
        let opened = open::by_path(pid, path, |opened| {
            inode == Some(opened.inode) || build_id.is_some() && build_id == read_build_id(&opened.file)
        });
        let object = self.intern(Whose::Of(pid), path, opened, build_id);
        if let Some(inode) = inode {
            remember(&mut self.by_mapping, inode, &object);
        }
        object
    }

    /// The object of a line of `maps`.
    pub(crate) fn mapped(&mut self, pid: Pid, entry: &Entry, inode: Inode) -> Arc<Object> {
        if let Some(known) = self.known(inode, &entry.path) {
            return known;
        }
        let opened = open::by_mapping(pid, entry)
            .or_else(|| open::by_path(pid, &open::without_deleted(&entry.path), |opened| opened.inode == inode));
        let object = self.intern(Whose::Of(pid), &inside_root(pid, &entry.path), opened, None);
        remember(&mut self.by_mapping, inode, &object);
        object
    }

    /// The object of a file that memtrace has opened below the root directory `root`, where its path is `path`.
    pub(crate) fn opened(&mut self, root: &Path, path: &Path, opened: Opened) -> Arc<Object> {
        self.intern(Whose::Below(root), path, Some(opened), None)
    }

    /// The object of a file that memtrace has opened for a process, which has another path for it.
    pub(crate) fn opened_by(&mut self, pid: Pid, path: &Path, opened: Opened) -> Arc<Object> {
        self.intern(Whose::Of(pid), path, Some(opened), None)
    }

    /// The object of code that has no file.
    pub(crate) fn nameless(&mut self, name: &Path) -> Arc<Object> {
        let object = || Arc::new(Object { path: name.to_owned(), handle: None, build_id: None, root: None });
        Arc::clone(self.nameless.entry(name.to_owned()).or_insert_with(object))
    }

    /// The object that was made for this inode. One without a handle did not keep its inode from being given to another
    /// file, so its path must be the same too, and while there is room for a handle it is better made again.
    fn known(&self, inode: Inode, path: &Path) -> Option<Arc<Object>> {
        let object = self.by_mapping.get(&inode)?;
        let valid = object.handle.is_some() || self.is_full() && object.path == path;
        valid.then(|| Arc::clone(object))
    }

    fn is_full(&self) -> bool {
        self.files.len() >= self.max_files
    }

    /// The object of an opened file: the known one, or a new one.
    fn intern(
        &mut self,
        whose: Whose<'_>,
        path: &Path,
        opened: Option<Opened>,
        build_id: Option<BuildId>,
    ) -> Arc<Object> {
        let known = opened.as_ref().and_then(|opened| self.by_stat.get(&opened.inode));
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let root = match whose {
            Whose::Of(pid) => self.root(pid),
            Whose::Below(root) => Some(root.to_owned()),
        };
        let Some(opened) = opened else {
            return Arc::new(Object { path: path.to_owned(), handle: None, build_id, root });
        };
        let object = Arc::new(Object {
            path: if opened.deleted { open::without_deleted(path) } else { path.to_owned() },
            build_id: read_build_id(&opened.file).or(build_id),
            handle: self.keep(opened.file),
            root,
        });
        // Only a file that is kept open keeps its inode from being given to another file.
        if object.handle.is_some() {
            remember(&mut self.by_stat, opened.inode, &object);
        }
        object
    }

    fn keep(&mut self, file: File) -> Option<PathBuf> {
        if self.is_full() {
            return None;
        }
        let handle = descriptor_path(&file);
        self.files.push(file);
        Some(handle)
    }

    /// The root directory of the process' mount namespace, by a path that outlives the process.
    fn root(&mut self, pid: Pid) -> Option<PathBuf> {
        let (key, file) = open::root(pid)?;
        if !self.roots.contains_key(&key) && self.roots.len() >= MAX_ROOTS {
            return None;
        }
        Some(descriptor_path(self.roots.entry(key).or_insert(file)))
    }
}

/// Who has an object's path.
#[derive(Clone, Copy)]
enum Whose<'a> {
    /// This process.
    Of(Pid),
    /// Whoever has this root directory.
    Below(&'a Path),
}

fn remember(index: &mut HashMap<Inode, Arc<Object>>, inode: Inode, object: &Arc<Object>) {
    if index.len() < MAX_OBJECTS {
        index.insert(inode, Arc::clone(object));
    }
}

fn read_build_id(file: &File) -> Option<BuildId> {
    Elf::parse(file).ok()?.build_id().ok()?
}

#[cfg(test)]
mod tests;
