//! Opens files of targets: objects, debug files and the files with the names of generated code.
//!
//! A target chooses its paths and the files there. A file is looked up once, without opening it (`O_PATH`), then checked, and
//! then opened by its descriptor, so that nobody can replace it between check and open.
//!
//! A file system can belong to a process (FUSE) or to another machine (NFS), which may never answer. A thread that waits
//! for it cannot be interrupted. So if a file system is not known to be local, a *worker*, a process of its own, looks up
//! and copies the file, and memtrace waits for two seconds only (`client`). memtrace itself has only `O_PATH`
//! descriptors of such files: even the close of an open file can wait.

mod client;
mod file_systems;
mod memory;
mod protocol;
mod server;
mod worker;

use std::collections::HashMap;
use std::env;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use memtrace_model::{AbsAddr, Object, Pid};
use memtrace_object::ObjectFiles;
use rustix::fs::{AtFlags, ResolveFlags};

use self::client::{Owner, WaitCause};
use self::file_systems::Kind;
use self::protocol::{Answer, Call};
use crate::object_budget::{ObjectBudget, ObjectOwner};
use crate::procfs::{self, kernel_files};
use crate::unread_files::UnreadFile;

pub use client::enable;
pub use protocol::Facts;
pub(crate) use protocol::{Links, Wants};
pub use server::{NAME, serve};

/// Device and inode number of this process's executable; `None` if they cannot be read.
static OWN: LazyLock<Option<[u64; 2]>> = LazyLock::new(|| identity(env::current_exe().and_then(fs::metadata)).ok());

/// Time that the checksums of debug files may take for the objects of one owner, and for the objects of all users.
const CHECKSUM_TIME: Duration = Duration::from_secs(1);
static CHECKSUMS: Mutex<Option<ObjectBudget>> = Mutex::new(None);

/// Processes of open root directories, by the path of the descriptor.
static ROOTS: Mutex<Option<HashMap<PathBuf, Origin>>> = Mutex::new(None);

/// A file that was looked up.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) facts: Facts,
    seen: OwnedFd,
    content: Content,
}

/// Content of a file that was looked up.
#[derive(Debug)]
enum Content {
    /// The file can be opened without a wait.
    Local(Kind),
    /// A worker has copied the file, or has failed to.
    Copied(io::Result<File>),
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file for reading: a copy in memory if reading the file itself can block.
    pub(crate) content: File,
    /// The looked-up file (`O_PATH`), if `content` is a copy.
    pub(crate) original: Option<File>,
    pub(crate) facts: Facts,
}

impl Found {
    /// Opens the file for reading.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if it is no regular file; errors of open(2).
    pub(crate) fn open(self) -> io::Result<OpenFile> {
        let Self { facts, seen, content } = self;
        Ok(match content {
            Content::Local(kind) => {
                OpenFile { content: worker::open_seen(&seen, &facts, kind)?, original: None, facts }
            }
            Content::Copied(copy) => {
                let content = copy?;
                ObjectOwner::set_original(&content, facts.device, facts.owner)?;
                OpenFile { content, original: Some(seen.into()), facts }
            }
        })
    }
}

/// Process that a looked-up file belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    pid: Option<Pid>,
    /// True if the process can have mounted the file system without privileges.
    by_user: bool,
}

impl Origin {
    /// Returns the process of a path in `/proc/PID`, or of an open root directory.
    fn of(path: &Path) -> Self {
        match kernel_files::process_of_path(path) {
            Some(pid) => Self { pid: Some(pid), by_user: !procfs::is_in_own_user_namespace(pid) },
            None => with_roots(|roots| roots.get(path).copied()).unwrap_or_default(),
        }
    }

    /// Returns the owner that is charged if `file` does not answer.
    fn owner(self, file: &Facts) -> Owner {
        self.responsible().unwrap_or(Owner::Device(file.device))
    }

    /// Returns the user responsible for the process.
    fn responsible(self) -> Option<Owner> {
        let pid = self.pid?;
        Some(Owner::User(procfs::responsible_user(pid)?, procfs::mount_namespace(pid)))
    }
}

/// Remembers the process of an open root directory with the descriptor `path`.
pub(crate) fn set_process_of_root(path: &Path, pid: Pid) {
    let origin = Origin { pid: Some(pid), by_user: !procfs::is_in_own_user_namespace(pid) };
    with_roots(|roots| _ = roots.insert(path.to_owned(), origin));
}

fn with_roots<T>(work: impl FnOnce(&mut HashMap<PathBuf, Origin>) -> T) -> T {
    work(ROOTS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Root directory of a process, or another directory. The files below it belong to the process.
#[derive(Debug)]
pub(crate) struct TargetRoot {
    directory: OwnedFd,
    origin: Origin,
    /// True for the root directory of memtrace. If its files do not answer, [`Owner::Own`] is charged.
    is_own: bool,
    /// Process or object whose count of unread files includes the files below the directory.
    unread: UnreadFile,
}

impl TargetRoot {
    /// Opens the directory at `path`: a path in procfs, such as the path of a descriptor, or "/".
    pub(crate) fn open_directory(path: &Path) -> io::Result<Self> {
        let directory = open_path(path, libc::O_PATH | libc::O_DIRECTORY)?;
        let unread = kernel_files::process_of_path(path).map_or(UnreadFile::Other, UnreadFile::Process);
        Ok(Self { directory, origin: Origin::of(path), is_own: !procfs::is_in_procfs(path), unread })
    }

    /// Lets unread files below the directory count for the process `pid`.
    fn for_process(self, pid: Pid) -> Self {
        Self { unread: UnreadFile::Process(pid), ..self }
    }

    /// Looks up `path` below the directory. Links do not lead out of it.
    pub(crate) fn find(&self, path: &Path, links: Links, wants: Wants) -> io::Result<Found> {
        let directory = known_facts(&self.directory)?;
        let (kind, by_user) = kind_of(&self.directory, &directory, self.origin, &self.unread)?;
        if [Kind::Local, Kind::Overlay].contains(&kind) {
            // Another file system can be mounted below the directory, or the lookup can mount one (autofs). A lookup in the
            // kernel's cache of names never waits. A lookup in a local file system would not wait either, but cannot be
            // restricted to that file system.
            let further = ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
            match worker::look_up(&self.directory, path, links, further) {
                Ok(seen) => {
                    let facts = known_facts(&seen)?;
                    return Ok(Found { facts, seen, content: Content::Local(Kind::Local) });
                }
                Err(error) if [Some(libc::EXDEV), Some(libc::EAGAIN)].contains(&error.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }
        let owner = if self.is_own { Owner::Own } else { self.origin.owner(&directory) };
        let path = Some(path.as_os_str().as_bytes().to_vec());
        let cause = WaitCause { file: self.unread.clone(), owner };
        ask(path, &self.directory, (links, wants), by_user, &cause)
    }

    /// Opens the regular file at `path` below the directory.
    pub(crate) fn open(&self, path: &Path) -> io::Result<OpenFile> {
        self.find(path, Links::Follow, Wants::Content)?.open()
    }

    /// Returns true if there is a file at `path` below the directory.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.find(path, Links::Follow, Wants::Facts).is_ok()
    }
}

/// A file that was looked up without opening it, through a link in procfs, such as the link of a descriptor.
#[derive(Debug)]
pub(crate) struct LinkedFile {
    seen: OwnedFd,
    facts: Facts,
    origin: Origin,
    unread: UnreadFile,
}

impl LinkedFile {
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let seen = see(path)?;
        let of_object = || UnreadFile::Object(path.to_owned());
        let unread = kernel_files::process_of_path(path).map_or_else(of_object, UnreadFile::Process);
        Ok(Self { facts: known_facts(&seen)?, seen, origin: Origin::of(path), unread })
    }

    fn kind(&self) -> io::Result<(Kind, bool)> {
        kind_of(&self.seen, &self.facts, self.origin, &self.unread)
    }

    /// Returns true if reading the file can wait for a process or another machine.
    pub(crate) fn can_wait(&self) -> io::Result<bool> {
        Ok(self.kind()?.0 == Kind::Served)
    }

    /// Returns true if the pages of the file can come from another file system, or be served.
    pub(crate) fn has_foreign_pages(&self) -> io::Result<bool> {
        Ok([Kind::Overlay, Kind::Served].contains(&self.kind()?.0))
    }

    /// Returns a path that leads to this file.
    pub(crate) fn path(&self) -> PathBuf {
        procfs::descriptor_path(&self.seen)
    }

    /// Lets a worker map the file, and run a BPF program with the address.
    pub(crate) fn run_on_mapping(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let call = Call::new(None, (Links::Follow, Wants::Run), self.origin.by_user);
        let cause = WaitCause { file: self.unread.clone(), owner: self.origin.owner(&self.facts) };
        let (answer, _) = client::ask(call, &[self.seen.as_fd(), program], &cause)?;
        answer.found.map_err(io::Error::from_raw_os_error)?;
        answer.error.map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error)))
    }

    fn find(self) -> io::Result<Found> {
        let kind = self.kind()?;
        let Self { seen, facts, origin, unread } = self;
        match kind {
            (Kind::Served, by_user) => {
                let cause = WaitCause { file: unread, owner: origin.owner(&facts) };
                ask(None, &seen, (Links::Follow, Wants::Content), by_user, &cause)
            }
            (kind, _) => Ok(Found { facts, seen, content: Content::Local(kind) }),
        }
    }
}

/// Reads at most `length` bytes of a process from `address` on, and faults their pages in; `None` if none can be read.
pub(crate) fn read_memory(pid: Pid, address: AbsAddr, length: usize) -> Option<Vec<u8>> {
    let owner = || Origin { pid: Some(pid), by_user: false }.responsible().unwrap_or(Owner::Own);
    memory::read(pid, address, length, owner)
}

/// Looks up a path without opening the file.
fn see(path: &Path) -> io::Result<OwnedFd> {
    open_path(path, libc::O_PATH)
}

fn open_path(path: &Path, flags: i32) -> io::Result<OwnedFd> {
    let open = move |path: &Path| Ok(OpenOptions::new().read(true).custom_flags(flags).open(path)?.into());
    kernel_files::access(path, open)
}

/// Returns the facts about an open file or directory that are known without a request to its file system.
pub(crate) fn known_facts(file: impl AsFd) -> io::Result<Facts> {
    Facts::read(file, AtFlags::STATX_DONT_SYNC)
}

/// Returns the kind of a file's file system, and true if a user can have mounted it. If the kind is not known, a worker finds
/// it out.
fn kind_of(file: &OwnedFd, facts: &Facts, origin: Origin, unread: &UnreadFile) -> io::Result<(Kind, bool)> {
    let kind = match Kind::of_file(facts, origin.by_user) {
        Some(kind) => kind,
        None => {
            let wants = (Links::Follow, Wants::Facts);
            let cause = WaitCause { file: unread.clone(), owner: origin.owner(facts) };
            let (answer, _) = client::ask(Call::new(None, wants, origin.by_user), &[file.as_fd()], &cause)?;
            remembered(&answer, origin.by_user)?.1
        }
    };
    Ok((kind, origin.by_user || kind == Kind::Served))
}

/// Lets a worker look up a file.
fn ask(
    path: Option<Vec<u8>>,
    target: &OwnedFd,
    wants: (Links, Wants),
    by_user: bool,
    cause: &WaitCause,
) -> io::Result<Found> {
    let (answer, descriptors) = client::ask(Call::new(path, wants, by_user), &[target.as_fd()], cause)?;
    let (facts, kind) = remembered(&answer, by_user)?;
    let mut descriptors = descriptors.into_iter();
    let seen = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
    let content = match (kind, answer.error) {
        (Kind::Local | Kind::Overlay | Kind::Generated, _) => Content::Local(kind),
        (Kind::Served, Some(error)) => Content::Copied(Err(io::Error::from_raw_os_error(error))),
        (Kind::Served, None) => {
            Content::Copied(descriptors.next().map(File::from).ok_or_else(|| io::ErrorKind::InvalidData.into()))
        }
    };
    Ok(Found { facts, seen, content })
}

/// Remembers the kind of the file system that a worker has found. Returns it with the facts about the file.
fn remembered(answer: &Answer, by_user: bool) -> io::Result<(Facts, Kind)> {
    let (facts, file_system) = answer.found.map_err(io::Error::from_raw_os_error)?;
    let kind = Kind::of_file_system(file_system, &facts, by_user);
    kind.remember(&facts);
    Ok((facts, kind))
}

/// Looks up `path` below the directory `root`. Links do not lead out of it.
pub(crate) fn find_below(root: &Path, path: &Path, links: Links) -> io::Result<Found> {
    TargetRoot::open_directory(root)?.find(path, links, Wants::Content)
}

/// Looks up a path that the process `pid` has mapped below the directory `root`. Links are refused.
pub(crate) fn find_mapped(pid: Pid, root: &Path, path: &Path) -> io::Result<Found> {
    TargetRoot::open_directory(root)?.for_process(pid).find(path, Links::Refuse, Wants::Content)
}

/// Returns the facts about a file that are known without a request to its file system. `path` is in procfs, such as the path of
/// a descriptor.
///
/// # Errors
///
/// Errors of open(2) and statx(2).
pub fn facts_at(path: &Path) -> io::Result<Facts> {
    known_facts(&see(path)?)
}

/// Opens a file as [`open_target_file`] does.
pub(crate) fn open_at(path: &Path) -> io::Result<OpenFile> {
    if procfs::is_in_procfs(path) {
        return LinkedFile::at(path)?.find()?.open();
    }
    // Users give paths of their working directory, as in `memtrace -- ./program`.
    TargetRoot::open_directory(Path::new("/"))?.open(&std::path::absolute(path)?)
}

/// Opens a file that can be mapped without a wait. The path is as for [`open_target_file`].
pub(crate) fn open_local(path: &Path) -> io::Result<File> {
    let OpenFile { content, original, .. } = open_at(path)?;
    if original.is_some() { Err(io::ErrorKind::Unsupported.into()) } else { Ok(content) }
}

/// Opens a regular file of a target for reading. The path is in procfs, such as the path of a descriptor, or in memtrace's root
/// directory.
///
/// # Errors
///
/// Errors of open(2); [`io::ErrorKind::InvalidInput`] if it is no regular file; [`io::ErrorKind::TimedOut`] if its file
/// system does not answer.
pub fn open_target_file(path: &Path) -> io::Result<File> {
    Ok(open_at(path)?.content)
}

/// Opens the regular file at `path` below the directory `root` for reading. Links do not lead out of `root`.
///
/// # Errors
///
/// Errors of openat2(2); otherwise as for [`open_target_file`].
pub fn open_below(root: &Path, path: &Path) -> io::Result<File> {
    Ok(TargetRoot::open_directory(root)?.open(path)?.content)
}

/// Opens the file of an object.
///
/// # Errors
///
/// Errors of [`open_target_file`]; [`io::ErrorKind::NotFound`] if the object has no file.
pub fn open_object(object: &Object) -> io::Result<File> {
    open_target_file(object.handle.as_deref().ok_or(io::ErrorKind::NotFound)?)
}

/// Files of targets, for functions that read several of them.
#[derive(Clone, Copy, Debug)]
pub struct TargetFiles;

impl ObjectFiles for TargetFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        open_target_file(path)
    }

    fn open_below(&self, root: &Path, path: &Path) -> io::Result<File> {
        open_below(root, path)
    }

    fn checksum(&self, object: &File, file: &File) -> io::Result<u32> {
        let owner = ObjectOwner::of(object)?;
        let mut budget = CHECKSUMS.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = budget.get_or_insert_with(|| ObjectBudget::new(CHECKSUM_TIME));
        if budget.left(owner, 0).is_none() {
            log::info!("a debug file is not used: checksums of the files that objects of its user name took too long");
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let start = Instant::now();
        let checksum = memtrace_object::checksum(file);
        budget.add(owner, 0, start.elapsed());
        checksum
    }

    fn is_own_executable(&self, file: &File) -> bool {
        OWN.is_some() && identity(file.metadata()).ok() == *OWN
    }
}

fn identity(metadata: io::Result<Metadata>) -> io::Result<[u64; 2]> {
    metadata.map(|metadata| [metadata.dev(), metadata.ino()])
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use harness::Scratch;

    use super::*;

    #[test]
    fn relative_path_is_one_of_the_working_directory() {
        let file = open_target_file(Path::new("src/target_files.rs")).unwrap();
        assert_eq!(identity(file.metadata()).unwrap(), identity(fs::metadata("src/target_files.rs")).unwrap());
    }

    #[test]
    fn only_the_executable_of_this_process_is_own() {
        let is_own = |path: &Path| TargetFiles.is_own_executable(&open_target_file(path).unwrap());
        assert!(is_own(&env::current_exe().unwrap()));
        assert!(!is_own(Path::new("/bin/sh")));
    }

    #[test]
    fn links_lead_to_files_below_the_root_only() {
        let scratch = Scratch::new();
        let root = scratch.subdirectory("root");
        fs::write(scratch.path("secret"), "outside").unwrap();
        fs::write(root.join("secret"), "inside").unwrap();
        let read = |path: &str| {
            let mut text = String::new();
            open_below(&root, Path::new(path)).and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        for (link, to) in [("relative", "../secret"), ("absolute", "/secret"), ("deep", "/../../secret")] {
            symlink(to, root.join(link)).unwrap();
            assert_eq!(read(link).unwrap(), "inside", "{link}");
        }
        assert_eq!(read("../secret").unwrap(), "inside");
        symlink(scratch.path("secret"), root.join("out")).unwrap();
        assert_eq!(read("out").unwrap_err().kind(), io::ErrorKind::NotFound);
        symlink("/proc/self/root/secret", root.join("magic")).unwrap();
        assert!(read("magic").is_err());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let scratch = Scratch::new();
        let root = scratch.path("");
        let fifo = scratch.pipe("fifo");
        let refused = open_below(&root, Path::new("fifo")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        for path in [fifo.as_path(), Path::new("/dev/null"), Path::new("/proc/self/maps"), &root] {
            assert_eq!(open_target_file(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }
}
