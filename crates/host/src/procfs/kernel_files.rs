//! Files that the kernel generates: in procfs, sysfs and cgroup file systems, and devices. memtrace makes their paths, and no
//! process can replace the files, so they are opened without checks. A path below `/proc/PID/root` belongs to a process: see
//! [`crate::target_files`].

#![expect(clippy::disallowed_methods, reason = "the files are those of the kernel")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use memtrace_model::Pid;

use super::locks;

/// Files in the directory of a process. The kernel takes no locks of the process to read them (fs/proc/array.c, and
/// `proc_pid_cgroup` in kernel/cgroup/cgroup.c).
const WITHOUT_LOCKS: [&str; 3] = ["cgroup", "comm", "status"];

/// Opens a file of the kernel for reading.
pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<File> {
    access(path.as_ref(), |path| File::open(path))
}

/// Reads a file of the kernel.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    access(path.as_ref(), |path| fs::read(path))
}

/// Reads a text file of the kernel.
pub(crate) fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    access(path.as_ref(), |path| fs::read_to_string(path))
}

/// Reads a link of the kernel.
pub(crate) fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    access(path.as_ref(), |path| fs::read_link(path))
}

/// Lets `access` open or read the file at `path`. In the directory of a process, `access` can wait for locks of the process.
pub(crate) fn access<T: Send + 'static>(
    path: &Path,
    access: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let has_locks = !path.file_name().is_some_and(|name| WITHOUT_LOCKS.iter().any(|known| name == *known));
    match process_of_path(path).filter(|_| has_locks) {
        Some(pid) => {
            let path = path.to_owned();
            locks::read(pid, move || access(&path))
        }
        None => access(path),
    }
}

/// Returns the process of a path `/proc/PID/…`.
pub(crate) fn process_of_path(path: &Path) -> Option<Pid> {
    let first = path.strip_prefix("/proc").ok()?.components().next()?;
    first.as_os_str().to_str()?.parse().ok().map(Pid)
}
