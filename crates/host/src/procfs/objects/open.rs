//! Opens files that processes have mapped.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memtrace_model::{AbsAddr, Pid};

use crate::procfs::maps;
use crate::procfs::maps::{Inode, MapsEntry};
use crate::procfs::process::proc_path;
use crate::target_files::{self, Links, OpenFile, known_facts};

/// An open regular file.
#[derive(Debug)]
pub struct Opened {
    /// The file for reading: a copy in memory if reading the file itself can block.
    pub file: File,
    /// The looked-up file (`O_PATH`), if `file` is a copy.
    original: Option<File>,
    pub inode: Inode,
    /// True if the file has been deleted.
    pub deleted: bool,
}

impl Opened {
    pub(crate) fn of(open: OpenFile) -> Self {
        let OpenFile { content, original, facts } = open;
        let inode = Inode { device: facts.device, inode: facts.inode };
        Self { file: content, original, inode, deleted: facts.links == 0 }
    }

    /// Returns a descriptor by which the file can be opened again.
    pub(super) fn into_handle(self) -> File {
        self.original.unwrap_or(self.file)
    }

    /// Opens the regular file at `path`, which is in procfs, or that of a descriptor.
    ///
    /// # Errors
    ///
    /// Errors of [`target_files::open_target_file`].
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(target_files::open_at(path)?))
    }

    /// Opens the regular file of a mapping at its `path` below the directory `root`, which has no links.
    ///
    /// # Errors
    ///
    /// Errors of [`target_files::open_below`].
    pub fn below(root: &Path, path: &Path) -> io::Result<Self> {
        Ok(Self::of(target_files::find_below(root, path, Links::Refuse)?.open()?))
    }
}

/// Opens the file of a mapping through `/proc/PID/map_files`. This does not depend on the file's path and mount
/// namespace, and works for deleted files. It needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
/// (`proc_map_files_get_link`, fs/proc/base.c).
pub(super) fn by_mapping(pid: Pid, entry: &MapsEntry) -> Option<Opened> {
    let opened = by_addresses(pid, entry.start, entry.end)?;
    // If the inodes differ, the mapping may have been replaced since the line was read. They also differ on overlayfs
    // and btrfs, which show other inodes in `maps` than in `stat`. An unchanged line proves that the mapping is the
    // same.
    let same = entry.file == Some(opened.inode) || maps::entries(pid).is_ok_and(|entries| entries.contains(entry));
    same.then_some(opened)
}

/// Opens the file of the mapping with these addresses through `/proc/PID/map_files`. The process may have mapped
/// another file there since the addresses were recorded.
pub(super) fn by_addresses(pid: Pid, start: AbsAddr, end: AbsAddr) -> Option<Opened> {
    Opened::at(&proc_path(pid, &format!("map_files/{:x}-{:x}", start.0, end.0))).ok()
}

/// Opens a path in the root directory of the process, or else in memtrace's, if `expected` accepts the file.
pub(super) fn by_path(pid: Pid, path: &Path, expected: impl Fn(&Opened) -> bool) -> Option<Opened> {
    let roots = [proc_path(pid, "root"), PathBuf::from("/")];
    roots.iter().filter_map(|root| Opened::below(root, path).ok()).find(|opened| expected(opened))
}

/// Removes the suffix that the kernel appends to the path of a deleted file (`d_path`, fs/d_path.c).
pub(super) fn without_deleted(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    PathBuf::from(OsString::from_vec(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes).to_vec()))
}

/// Opens the root directory of a process. Returns its key, which is the mount namespace and the inode, and its file.
pub(super) fn root(pid: Pid) -> Option<((PathBuf, Inode), File)> {
    let namespace = fs::read_link(proc_path(pid, "ns/mnt")).ok()?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(proc_path(pid, "root")).ok()?;
    let state = known_facts(&directory).ok()?;
    Some(((namespace, Inode { device: state.device, inode: state.inode }), directory))
}

/// Returns the maximum number of memtrace's open file descriptors.
pub(super) fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the length of the call.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if done == 0 { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { 0 }
}
