//! Open files of a store, with the time of their last use.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use memtrace_model::{Bytes, Object};

use crate::procfs::own_process::descriptor_path;
use crate::target_files::known_facts;

/// Share of the limit, in eighths. If this share is open, unused files are closed.
const HIGH: usize = 7;
/// Share of the limit, in eighths, that then stays open.
const LOW: usize = 4;

/// Maximum share of deleted files that are open for names only, in eighths of the limit.
const DELETED: usize = 1;

/// Maximum disk space of deleted files that are open for names only.
const DELETED_SPACE: Bytes = Bytes(1 << 30);

/// Unit of `st_blocks` in bytes (stat(3type)).
const BLOCK: u64 = 512;

/// Open files by handle.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: HashMap<PathBuf, OpenFile>,
    limit: usize,
    /// Number of open files that starts the next search for unused files.
    due: usize,
    /// Number of files that were opened since the last search for deleted files.
    unchecked: usize,
    /// Number of uses so far, which serves as a clock.
    uses: u64,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    last_use: u64,
}

/// Reason why a file stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    None,
    /// Stacks of ended processes need the names of the file's functions.
    Names,
    /// A process image or another part of memtrace refers to the file.
    Use,
}

/// File that can be closed.
struct Candidate {
    need: Need,
    /// Disk space of the file, if it was deleted. A deleted file cannot be opened again.
    deleted: Option<Bytes>,
    last_use: u64,
    handle: PathBuf,
}

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        Self { files: HashMap::new(), limit, due: limit * HIGH / 8, unchecked: 0, uses: 0 }
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

    /// Returns true if the number of files that were opened since the last search for deleted files exceeds the number of deleted
    /// files that may stay open.
    pub(super) const fn may_have_deleted(&self) -> bool {
        self.limit > 0 && self.unchecked > self.most_deleted()
    }

    const fn most_deleted(&self) -> usize {
        self.limit * DELETED / 8
    }

    /// Keeps a file open. Returns its handle; `None` if the limit is reached.
    pub(super) fn keep(&mut self, file: File) -> Option<PathBuf> {
        if self.is_full() {
            return None;
        }
        let handle = descriptor_path(&file);
        self.uses += 1;
        self.unchecked += 1;
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

    /// Returns the handles, the least recently used first.
    pub(super) fn handles(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_unstable_by_key(|(_, file)| file.last_use);
        files.into_iter().map(|(handle, _)| handle.clone()).collect()
    }

    /// Closes files, and returns their handles. Files with [`Need::Use`] stay open. Closes:
    ///
    /// - files that `is_abandoned` accepts;
    /// - if the limit is near, the least recently used files;
    /// - with `checks_deleted`, the deleted files that nothing needs or that exceed their share.
    pub(super) fn close(
        &mut self,
        need_of: impl Fn(&Path) -> Need,
        is_abandoned: impl Fn(&Path) -> bool,
        checks_deleted: bool,
    ) -> Vec<PathBuf> {
        let mut candidates: Vec<_> =
            self.files.iter().filter_map(|(handle, file)| file.candidate(handle, need_of(handle))).collect();
        candidates.sort_unstable_by_key(|file| (file.need, file.deleted.is_some(), file.last_use));
        let most = if self.is_due() { self.limit * LOW / 8 } else { usize::MAX };
        let mut closed = if checks_deleted { self.take_deleted(&mut candidates) } else { Vec::new() };
        let mut surplus = (self.files.len() - closed.len()).saturating_sub(most);
        for Candidate { handle, .. } in candidates {
            if surplus > 0 || is_abandoned(&handle) {
                surplus = surplus.saturating_sub(1);
                closed.push(handle);
            }
        }
        for handle in &closed {
            self.files.remove(handle);
        }
        // If most files are used, the next search waits until more files are open.
        self.due = (self.files.len() + self.limit / 8).max(self.limit * HIGH / 8);
        if checks_deleted {
            self.unchecked = 0;
        }
        closed
    }

    /// Removes the deleted files that nothing needs or that exceed their share, and returns their handles.
    fn take_deleted(&self, candidates: &mut Vec<Candidate>) -> Vec<PathBuf> {
        let (mut count, mut space) = (self.most_deleted(), DELETED_SPACE);
        let mut taken = Vec::new();
        // The most recently used files stay open.
        for index in (0..candidates.len()).rev() {
            let Candidate { need, deleted: Some(size), .. } = candidates[index] else { continue };
            if need == Need::Names && count > 0 && size <= space {
                count -= 1;
                space.0 -= size.0;
            } else {
                taken.push(candidates.remove(index).handle);
            }
        }
        taken
    }
}

impl OpenFile {
    /// Returns the file as a candidate for closing, unless it is used.
    fn candidate(&self, handle: &Path, need: Need) -> Option<Candidate> {
        let state = if need < Need::Use { known_facts(&self.file).ok() } else { return None };
        let deleted = state.filter(|file| file.links == 0).map(|file| Bytes(file.blocks * BLOCK));
        Some(Candidate { need, deleted, last_use: self.last_use, handle: handle.to_owned() })
    }
}
