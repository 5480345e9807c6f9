//! Opening the very file that a process has mapped.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::model::Pid;
use crate::procfs::maps;
use crate::procfs::maps::{Entry, Inode};
use crate::procfs::process::proc_path;

/// An open regular file.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) inode: Inode,
    /// Whether no directory names it any more.
    pub(crate) deleted: bool,
}

/// Opens a regular file for reading.
///
/// What is not a regular file is never opened: opening a device can start it, and opening a pipe can wait for ever. The
/// path is walked once, by a descriptor that stands for the file without opening it, so nobody can exchange the file
/// in between.
pub(crate) fn regular(path: &Path) -> io::Result<Opened> {
    let seen = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    if !seen.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // O_NONBLOCK: not to wait for somebody to give up a lease on the file (fcntl(2), F_SETLEASE).
    let again = Path::new("/proc/self/fd").join(seen.as_raw_fd().to_string());
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(again)?;
    let metadata = file.metadata()?;
    let inode = Inode { device: metadata.dev(), inode: metadata.ino() };
    Ok(Opened { file, inode, deleted: metadata.nlink() == 0 })
}

/// Opens the file of a mapping through `/proc/PID/map_files`: whatever its path is, wherever it is mounted, even when
/// it was deleted. Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE (`proc_map_files_get_link`, fs/proc/base.c).
pub(crate) fn by_mapping(pid: Pid, entry: &Entry) -> Option<Opened> {
    let link = format!("map_files/{:x}-{:x}", entry.start.0, entry.end.0);
    let opened = regular(&proc_path(pid, &link)).ok()?;
    // Since the line was read, something else may have been mapped there. The inodes may also differ because overlayfs
    // and btrfs name others in `maps` than in `stat`; then the mapping is what it was if its line is.
    let same = entry.file == Some(opened.inode) || maps::entries(pid).is_ok_and(|entries| entries.contains(entry));
    same.then_some(opened)
}

/// Opens a path as the process sees it, else as memtrace does, if the file there is `expected`.
pub(crate) fn by_path(pid: Pid, path: &Path, expected: impl Fn(&Opened) -> bool) -> Option<Opened> {
    let inside = proc_path(pid, "root").join(path.strip_prefix("/").ok()?);
    [inside.as_path(), path].into_iter().filter_map(|path| regular(path).ok()).find(|opened| expected(opened))
}

/// The path without the mark that the kernel puts behind a deleted file's (`d_path`, fs/d_path.c).
pub(crate) fn without_deleted(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    PathBuf::from(OsString::from_vec(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes).to_vec()))
}

/// The root directory of a process, with a key by which it is known again: its mount namespace and its inode.
pub(crate) fn root(pid: Pid) -> Option<((PathBuf, Inode), File)> {
    let namespace = fs::read_link(proc_path(pid, "ns/mnt")).ok()?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(proc_path(pid, "root")).ok()?;
    let metadata = directory.metadata().ok()?;
    Some(((namespace, Inode { device: metadata.dev(), inode: metadata.ino() }), directory))
}

/// How many descriptors memtrace may have open.
pub(crate) fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the length of the call.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if done == 0 { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { 0 }
}
