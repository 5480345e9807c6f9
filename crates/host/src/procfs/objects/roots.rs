//! Open root directories of processes.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_model::Pid;

use super::open;
use crate::procfs::maps::Inode;
use crate::procfs::own_process::descriptor_path;
use crate::target_files::set_process_of_root;

/// Open root directories, by mount namespace and inode. An open directory keeps the mounts of its container alive.
#[derive(Debug)]
pub(super) struct Roots {
    roots: HashMap<(PathBuf, Inode), (File, Arc<Path>)>,
    limit: usize,
    /// True if there was no room for a root directory.
    refused: bool,
}

impl Roots {
    pub(super) fn new(limit: usize) -> Self {
        Self { roots: HashMap::new(), limit, refused: false }
    }

    /// Returns true if there was no room for a root directory since the last call.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Returns the root directory of the process as a path that outlives the process; `None` if it cannot be opened, or
    /// there are too many root directories.
    pub(super) fn of_process(&mut self, pid: Pid) -> Option<Arc<Path>> {
        let (key, file) = open::root(pid)?;
        if !self.roots.contains_key(&key) && self.roots.len() >= self.limit {
            // Close the root directories of ended containers.
            self.roots.retain(|_, (_, path)| Arc::strong_count(path) > 1);
            if self.roots.len() >= self.limit {
                self.refused = true;
                return None;
            }
        }
        let (_, path) = self.roots.entry(key).or_insert_with(|| {
            let path: Arc<Path> = descriptor_path(&file).into();
            set_process_of_root(&path, pid);
            (file, path)
        });
        Some(Arc::clone(path))
    }

    /// Returns the shared path of a root directory. If this is an open directory, it stays open while the path is used.
    pub(super) fn of_path(&self, path: &Path) -> Arc<Path> {
        let known = self.roots.values().find(|(_, known)| **known == *path);
        known.map_or_else(|| path.into(), |(_, known)| Arc::clone(known))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.roots.len()
    }
}
