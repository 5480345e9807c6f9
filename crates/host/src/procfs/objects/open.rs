//! Opens files that processes have mapped.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memtrace_model::{AbsAddr, BuildId, Object, Pid};
use memtrace_object::elf::{Elf, ElfError, notes};

use crate::procfs::kernel_files;
use crate::procfs::maps;
use crate::procfs::maps::{Inode, MapsEntry};
use crate::procfs::process::proc_path;
use crate::target_files::{self, Facts, Found, Links, OpenFile, known_facts};

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
        Self { file: content, original, inode: inode_of(&facts), deleted: facts.links == 0 }
    }

    /// Returns a descriptor that can open the file again.
    pub(super) fn into_handle(self) -> File {
        self.original.unwrap_or(self.file)
    }

    /// Opens the regular file at `path`, as [`target_files::open_target_file`] does.
    ///
    /// # Errors
    ///
    /// Errors of [`target_files::open_target_file`].
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(target_files::open_at(path)?))
    }
}

/// Opens the file of a mapping through `/proc/PID/map_files`. This does not depend on the file's path and mount
/// namespace, and works for deleted files. It needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
/// (`proc_map_files_get_link`, fs/proc/base.c).
pub(super) fn by_mapping(pid: Pid, entry: &MapsEntry) -> Option<Opened> {
    let opened = by_addresses(pid, entry.start, entry.end)?;
    // If the inodes differ, the mapping may have been replaced since the line was read. The inodes differ on overlayfs and
    // btrfs too, which show other inodes in `maps` than in `stat`. An unchanged line proves that the mapping is the same.
    let same = entry.file == Some(opened.inode) || maps::entries(pid).is_ok_and(|entries| entries.contains(entry));
    same.then_some(opened)
}

/// Opens the file of the mapping with these addresses through `/proc/PID/map_files`. The process may have mapped
/// another file there since the addresses were recorded.
pub(super) fn by_addresses(pid: Pid, start: AbsAddr, end: AbsAddr) -> Option<Opened> {
    Opened::at(&proc_path(pid, &format!("map_files/{:x}-{:x}", start.0, end.0))).ok()
}

/// Opens the file with this inode or this build ID at `path` in the root directory of the process, or else in the root directory
/// of memtrace.
pub(super) fn by_path(pid: Pid, path: &Path, inode: Option<Inode>, build_id: Option<&BuildId>) -> Option<Opened> {
    let find = |root: &Path| target_files::find_mapped(pid, root, path).ok();
    let in_process = || open_found(find(&proc_path(pid, "root"))?, inode, build_id, |_| true);
    // The process can have chosen the path in mounts of its own. The file at this path can be one that its user may not
    // read, so only a file that all users can read is accepted.
    in_process().or_else(|| open_found(find(Path::new("/"))?, inode, build_id, Facts::is_readable_by_all))
}

/// Opens a file that was looked up. A file with another inode is opened if it has this build ID, and `permitted` accepts it.
fn open_found(
    found: Found,
    inode: Option<Inode>,
    build_id: Option<&BuildId>,
    permitted: impl Fn(&Facts) -> bool,
) -> Option<Opened> {
    let is_same = inode == Some(inode_of(&found.facts));
    if !is_same && (build_id.is_none() || !permitted(&found.facts)) {
        return None;
    }
    let opened = Opened::of(found.open().ok()?);
    (is_same || build_id.is_some_and(|build_id| has_build_id(&opened.file, build_id))).then_some(opened)
}

/// Opens the file of an object again by its build ID.
pub(super) fn again(object: &Object) -> Option<Opened> {
    let build_id = object.build_id.as_ref();
    let find = |root: &Path| target_files::find_below(root, &object.path, Links::Refuse).ok();
    let in_own = |root: &Path| open_found(find(root)?, None, build_id, |_| true);
    let in_host = || open_found(find(Path::new("/"))?, None, build_id, Facts::is_readable_by_all);
    object.root.as_deref().and_then(in_own).or_else(in_host)
}

/// Returns true if the file has this build ID, or is for another architecture. Files for another architecture are not
/// parsed or symbolized, so another version of such a file does no harm.
pub(super) fn has_build_id(file: &File, expected: &BuildId) -> bool {
    match Elf::parse(file) {
        Ok(elf) => notes::build_id(&elf).ok().flatten().as_ref() == Some(expected),
        Err(error) => matches!(error, ElfError::Foreign(_)),
    }
}

pub(super) fn read_build_id(file: &File) -> Option<BuildId> {
    notes::build_id(&Elf::parse(file).ok()?).ok()?
}

/// Removes the suffix that the kernel appends to the path of a deleted file (`d_path`, fs/d_path.c).
pub(super) fn without_deleted(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    PathBuf::from(OsString::from_vec(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes).to_vec()))
}

/// Opens the root directory of a process. Returns its key, which is the mount namespace and the inode, and its file.
pub(super) fn root(pid: Pid) -> Option<((PathBuf, Inode), File)> {
    let namespace = kernel_files::read_link(proc_path(pid, "ns/mnt")).ok()?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let open = move |path: &Path| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let directory = kernel_files::access(&proc_path(pid, "root"), open).ok()?;
    let state = known_facts(&directory).ok()?;
    Some(((namespace, inode_of(&state)), directory))
}

const fn inode_of(facts: &Facts) -> Inode {
    Inode { device: facts.device, inode: facts.inode }
}

/// Returns the maximum number of memtrace's open file descriptors.
pub(super) fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the length of the call.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if done == 0 { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { 0 }
}
