//! The open files of a store, in the order of their last use.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::model::Object;
use crate::procfs::own_process::descriptor_path;

/// Files are closed when more than this share is open, in eighths of the limit, until the second share is left.
const HIGH: usize = 7;
const LOW: usize = 4;

/// Open files by handle.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: HashMap<PathBuf, OpenFile>,
    limit: usize,
    /// Number of files at which unused ones are looked for.
    due: usize,
    /// Number of uses so far.
    uses: u64,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    last_use: u64,
}

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        Self { files: HashMap::new(), limit, due: limit * HIGH / 8, uses: 0 }
    }

    pub(super) fn limit(&mut self, limit: usize) {
        (self.limit, self.due) = (limit, limit * HIGH / 8);
    }

    pub(super) fn is_full(&self) -> bool {
        self.files.len() >= self.limit
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if unused files should be closed.
    pub(super) fn is_due(&self) -> bool {
        self.limit > 0 && self.files.len() >= self.due
    }

    /// Keeps a file open. Returns its handle; `None` if the limit is reached.
    pub(super) fn keep(&mut self, file: File) -> Option<PathBuf> {
        if self.is_full() {
            return None;
        }
        let handle = descriptor_path(&file);
        self.uses += 1;
        self.files.insert(handle.clone(), OpenFile { file, last_use: self.uses });
        Some(handle)
    }

    /// Records a use of the object.
    pub(super) fn touch(&mut self, object: &Object) {
        if let Some(file) = object.handle.as_ref().and_then(|handle| self.files.get_mut(handle)) {
            self.uses += 1;
            file.last_use = self.uses;
        }
    }

    /// Returns true if the file has no name any more. As long as it is open, it takes space on its disk.
    pub(super) fn is_deleted(&self, handle: &Path) -> bool {
        self.files.get(handle).is_some_and(|open| open.file.metadata().is_ok_and(|file| file.nlink() == 0))
    }

    /// Returns the handles, the least recently used first.
    pub(super) fn handles(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_unstable_by_key(|(_, file)| file.last_use);
        files.into_iter().map(|(handle, _)| handle.clone()).collect()
    }

    /// Closes the files for which `is_abandoned` returns true and, if the limit is near, the least recently used ones for
    /// which `is_used` returns false. Returns their handles.
    pub(super) fn close(
        &mut self,
        is_used: impl Fn(&Path) -> bool,
        is_abandoned: impl Fn(&Path) -> bool,
    ) -> Vec<PathBuf> {
        let mut surplus = if self.is_due() { self.files.len().saturating_sub(self.limit * LOW / 8) } else { 0 };
        let mut closed = self.handles();
        closed.retain(|handle| {
            let is_surplus = surplus > 0 && !is_used(handle);
            surplus -= usize::from(is_surplus);
            is_surplus || is_abandoned(handle)
        });
        for handle in &closed {
            self.files.remove(handle);
        }
        // If most files are used, the next search waits for some more.
        self.due = (self.files.len() + self.limit / 8).max(self.limit * HIGH / 8);
        closed
    }
}
