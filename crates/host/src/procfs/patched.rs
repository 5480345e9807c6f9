//! Processes with a stub of memtrace: where the stub is mapped, and its control page.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use memtrace_model::{AbsAddr, Pid};
use memtrace_object::overlay::layout;
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::io::Errno;

use super::error::ProcessError;
use super::maps::{self, Inode, MapsEntry};
use super::process::{failure, proc_path};
use super::select::pids;
use super::{kernel_files, locks};

/// Maximum number of stubs of a process. A process can map files with the name of a stub.
const MAX_STUBS: usize = 16;

/// Size of the part of the control page that is read, in bytes.
const CONTROL: usize = 0x78;

/// Number of attempts to lock the file of a stub, and the time between two of them. A process that only checks for a lock takes
/// the lock itself for some microseconds.
const LOCK_ATTEMPTS: u32 = 4;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A stub in a process. Processes that a fork has created have it at the same address, with the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchedStub {
    /// Address of its code.
    pub base: AbsAddr,
    /// File of its code.
    pub file: Inode,
}

impl PatchedStub {
    /// Locks the file of a stub for this memtrace (flock(2)). The kernel removes the lock when the last copy of the descriptor is
    /// closed, also if memtrace is killed, and all PID namespaces see it. Returns false if another process has locked the file.
    ///
    /// # Errors
    ///
    /// The kernel has no room for the lock.
    pub fn lock(file: BorrowedFd<'_>) -> io::Result<bool> {
        for _ in 0..LOCK_ATTEMPTS {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(true),
                Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Returns true if another open file description holds a lock on the file of this stub: the memtrace that samples
    /// the process has such a lock. Opening the file by its link needs a capability: without it, the result is false.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_locked(self, pid: Pid) -> bool {
        let Ok(file) = open_mapped_stub(pid, self.base.0) else { return false };
        // Unlock the file by a call: a child that this process has just forked could keep it open, and thus locked.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => flock(&file, FlockOperation::Unlock).is_err(),
            Err(error) => error == Errno::WOULDBLOCK,
        }
    }

    /// Finds the stubs in all processes that are not in `known`, and replaces `known` by the set of all processes.
    /// Skips processes that cannot be read.
    #[must_use]
    pub fn of_new_processes(known: &mut BTreeSet<Pid>) -> Vec<(Pid, Self)> {
        let all: BTreeSet<_> = pids().unwrap_or_default().into_iter().collect();
        let of_process = |pid| stubs(pid).unwrap_or_default().into_iter().map(move |stub| (pid, stub));
        let found = all.difference(known).copied().flat_map(of_process).collect();
        *known = all;
        found
    }

    /// Reads the first five bytes at each of `addresses` in a process that has a stub at `base`; `None` for bytes that cannot be read.
    ///
    /// # Errors
    ///
    /// The process has exited, or has no stub there: after an exec, other code can be at these addresses.
    /// [`io::ErrorKind::TimedOut`] if the process holds a lock of its memory.
    pub fn code_at(pid: Pid, base: AbsAddr, addresses: Vec<AbsAddr>) -> io::Result<Vec<Option<[u8; 5]>>> {
        locks::read(pid, move || {
            let memory = kernel_files::open(proc_path(pid, "mem"))?;
            let mut magic = [0; layout::MAGIC.len()];
            memory.read_exact_at(&mut magic, base.0)?;
            if magic != layout::MAGIC {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let code = |address: AbsAddr| {
                let mut code = [0; 5];
                memory.read_exact_at(&mut code, address.0).is_ok().then_some(code)
            };
            Ok(addresses.into_iter().map(code).collect())
        })
    }
}

/// Finds the stubs in a process.
///
/// # Errors
///
/// The memory map cannot be read: the process has exited, or permission is missing.
pub fn stubs(pid: Pid) -> Result<Vec<PatchedStub>, ProcessError> {
    let path = proc_path(pid, "maps");
    kernel_files::access(&path, find_stubs).map_err(|error| failure(pid, &path, error))
}

/// Finds the stubs in all processes. Skips processes that cannot be read.
#[must_use]
pub fn patched_processes() -> Vec<(Pid, AbsAddr)> {
    PatchedStub::of_new_processes(&mut BTreeSet::new()).into_iter().map(|(pid, stub)| (pid, stub.base)).collect()
}

fn find_stubs(maps: &Path) -> io::Result<Vec<PatchedStub>> {
    let device = memfd_device()?;
    let mut stubs = Vec::new();
    for line in BufReader::new(kernel_files::open(maps)?).split(b'\n') {
        let line = line?;
        if line.ends_with(layout::MAPS_PATH.as_bytes())
            && let Some(entry) = MapsEntry::parse(&line)
            && is_stub(&entry, device)
            && let Some(file) = entry.file
            && stubs.len() < MAX_STUBS
        {
            stubs.push(PatchedStub { base: entry.start, file });
        }
    }
    Ok(stubs)
}

/// Returns true for the mapping of a stub's code. `device`: the file system of all memfds. A file of another file system can
/// have the same name.
fn is_stub(entry: &MapsEntry, device: u64) -> bool {
    entry.path == Path::new(layout::MAPS_PATH)
        && entry.file.is_some_and(|file| file.device == device)
        && entry.end.0.checked_sub(entry.start.0) == Some(layout::CODE_SIZE)
        && entry.offset.0 == 0
        && (entry.readable, entry.writable, entry.executable, entry.shared) == (true, false, true, false)
}

/// Returns the device and the inode of the file that a process has mapped at `address`, as `maps` shows them; `None` if no file is
/// mapped there.
#[must_use]
pub fn mapped_inode(pid: Pid, address: AbsAddr) -> Option<Inode> {
    let entries = maps::entries(pid).ok()?;
    entries.into_iter().find(|entry| entry.start <= address && address < entry.end)?.file
}

/// Returns the device number of the kernel's file system for memfds (`shm_mnt`, mm/shmem.c).
fn memfd_device() -> io::Result<u64> {
    static DEVICE: OnceLock<u64> = OnceLock::new();
    if let Some(device) = DEVICE.get() {
        return Ok(*device);
    }
    let file = File::from(memfd_create(layout::MEMFD_NAME, MemfdFlags::CLOEXEC)?);
    let device = file.metadata()?.dev();
    Ok(*DEVICE.get_or_init(|| device))
}

/// Opens the memory of a process for reading and writing. The open file belongs to the image that the process runs now.
pub(crate) fn open_memory_for_writing(pid: Pid) -> io::Result<File> {
    kernel_files::access(&proc_path(pid, "mem"), |path| File::options().read(true).write(true).open(path))
}

/// Opens the memory of a process for reading and writing, through one of its threads.
#[cfg(target_arch = "x86_64")]
pub(crate) fn open_thread_memory(pid: Pid, tid: u32) -> io::Result<File> {
    let path = proc_path(pid, &format!("task/{tid}/mem"));
    kernel_files::access(&path, |path| File::options().read(true).write(true).open(path))
}

/// Opens the memfd of a new stub, which is still empty, by its descriptor in a process.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] for another file: a thread of the process can have replaced the descriptor.
#[cfg(target_arch = "x86_64")]
pub(crate) fn open_new_stub(pid: Pid, descriptor: u32) -> io::Result<File> {
    reopen_memfd(&proc_path(pid, &format!("fd/{descriptor}")), 0, File::options().read(true).write(true))
}

/// Opens the file of the stub at `base`.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] for another file.
#[cfg(target_arch = "x86_64")]
pub(crate) fn open_mapped_stub(pid: Pid, base: u64) -> io::Result<File> {
    let end = base.saturating_add(layout::CODE_SIZE);
    let path = proc_path(pid, &format!("map_files/{base:x}-{end:x}"));
    reopen_memfd(&path, layout::CODE_SIZE, File::options().read(true))
}

/// Returns true if a descriptor of a process leads to the memfd of a stub.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_stub_descriptor(pid: Pid, descriptor: u32) -> bool {
    find_memfd(&proc_path(pid, &format!("fd/{descriptor}"))).is_ok()
}

/// Opens the memfd that a link of the kernel leads to, if it has the name of a stub and this length.
#[cfg(target_arch = "x86_64")]
fn reopen_memfd(link: &Path, length: u64, options: &std::fs::OpenOptions) -> io::Result<File> {
    let (found, found_length) = find_memfd(link)?;
    if found_length == length {
        options.open(super::descriptor_path(&found))
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Returns the memfd that a link of the kernel leads to, if it has the name of a stub, and its length. The descriptor does not open
/// the file, so that another file is not affected.
#[cfg(target_arch = "x86_64")]
fn find_memfd(link: &Path) -> io::Result<(File, u64)> {
    use rustix::fs::{Mode, OFlags, open};

    let found = File::from(open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    let name = super::opened_path(&super::descriptor_path(&found));
    // The name comes first: the file system of another file can let the request for its metadata wait.
    if name.is_none_or(|name| name != Path::new(layout::MAPS_PATH)) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let facts = found.metadata()?;
    if facts.is_file() && facts.dev() == memfd_device()? {
        Ok((found, facts.len()))
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Control page of a stub.
#[derive(Debug)]
pub struct ControlPage {
    pid: Pid,
    memory: Arc<File>,
    /// Address of the page.
    start: u64,
}

impl ControlPage {
    /// Opens the control page of the stub at `base`. It belongs to the image that the process runs now: after an exec, it
    /// cannot be read.
    ///
    /// # Errors
    ///
    /// Permission is missing, or the process has exited.
    pub fn open(pid: Pid, base: AbsAddr) -> io::Result<Self> {
        Ok(Self { pid, memory: Arc::new(open_memory_for_writing(pid)?), start: start_of_page(base)? })
    }

    /// Opens, reads and closes the control page of the stub at `base`. The caller waits only once for the thread that
    /// does this.
    ///
    /// # Errors
    ///
    /// The same as for [`Self::open`] and [`Self::read`].
    pub fn read_once(pid: Pid, base: AbsAddr) -> io::Result<ControlValues> {
        let start = start_of_page(base)?;
        locks::read(pid, move || ControlValues::read(&open_memory_for_writing(pid)?, start))
    }

    /// Reads the values.
    ///
    /// # Errors
    ///
    /// The image has ended, or its page is not mapped. [`io::ErrorKind::TimedOut`] if the process holds a lock of its memory.
    pub fn read(&self) -> io::Result<ControlValues> {
        let (memory, start) = (Arc::clone(&self.memory), self.start);
        locks::read(self.pid, move || ControlValues::read(&memory, start))
    }

    /// Sets the shift of the mean interval. The write of one byte cannot be seen in part.
    ///
    /// # Errors
    ///
    /// The image has ended, or its page is not mapped. [`io::ErrorKind::TimedOut`] if the process holds a lock of its memory.
    pub fn set_shift(&self, shift: u8) -> io::Result<()> {
        let (memory, address) = (Arc::clone(&self.memory), self.start.saturating_add(layout::SHIFT));
        locks::read(self.pid, move || memory.write_all_at(&[shift], address))
    }
}

/// Returns the address of the control page of the stub at `base`.
fn start_of_page(base: AbsAddr) -> io::Result<u64> {
    base.0.checked_add(layout::CODE_SIZE).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Values of a control page. The process can write anything there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlValues {
    /// Number of the session. The words of a thread with another number belong to an earlier session.
    pub epoch: u64,
    /// Mean interval in bytes before the shift.
    pub interval_base: u64,
    pub shift: u8,
    /// Thinning level of the table.
    pub level: u8,
    /// Salt of the thinning hash.
    pub salt: u64,
    /// Number of threads between a sample's begin and its end.
    pub in_cold: u64,
    /// Sum of the countdowns that threads have begun. The allocated bytes are this sum less the current countdowns.
    pub drawn: u64,
    /// Number of threads that have begun to count.
    pub first_draws: u64,
    /// Number of sampled blocks.
    pub samples: u64,
    /// Number of sampled blocks that were freed.
    pub frees: u64,
    /// Number of samples that the full table did not take.
    pub not_inserted: u64,
    /// Number of searches in the table.
    pub checks: u64,
    /// Number of calls with a size of 2^47 bytes or more.
    pub large: u64,
    /// Pid and start time of the memtrace that takes the samples; zeros if there is none.
    pub owner: (u64, u64),
}

impl ControlValues {
    /// Reads the values at the address `start` of a process's memory.
    pub(crate) fn read(memory: &File, start: u64) -> io::Result<Self> {
        let mut page = [0; CONTROL];
        memory.read_exact_at(&mut page, start)?;
        Self::parse(&page).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(page: &[u8]) -> Option<Self> {
        let word = |at: u64| page.get(at as usize..)?.first_chunk().copied().map(u64::from_le_bytes);
        let byte = |at: u64| page.get(at as usize).copied();
        Some(Self {
            epoch: word(layout::EPOCH)?,
            interval_base: word(layout::INTERVAL_BASE)?,
            shift: byte(layout::SHIFT)?,
            level: byte(layout::LEVEL)?,
            salt: word(layout::SALT)?,
            in_cold: word(layout::IN_COLD)?,
            drawn: word(layout::DRAWN)?,
            first_draws: word(layout::FIRST_DRAWS)?,
            samples: word(layout::SAMPLES)?,
            frees: word(layout::FREES)?,
            not_inserted: word(layout::NOT_INSERTED)?,
            checks: word(layout::CHECKS)?,
            large: word(layout::LARGE)?,
            owner: (word(layout::OWNER_PID)?, word(layout::OWNER_START)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, AsRawFd as _};

    use super::*;

    fn own() -> Pid {
        Pid(std::process::id())
    }

    /// Maps `length` bytes of a file, and unmaps them when it is dropped.
    struct Mapping(*mut libc::c_void, usize);

    impl Mapping {
        fn new(file: &File, length: u64, protection: i32) -> Self {
            let length = length as usize;
            let (null, descriptor) = (std::ptr::null_mut(), file.as_raw_fd());
            // SAFETY: the kernel chooses the address of a new mapping.
            let start = unsafe { libc::mmap(null, length, protection, libc::MAP_PRIVATE, descriptor, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            Self(start, length)
        }

        fn start(&self) -> AbsAddr {
            AbsAddr(self.0 as u64)
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: this is the address and the length of the mapping, which nothing refers to.
            unsafe { libc::munmap(self.0, self.1) };
        }
    }

    fn memfd(name: &str, length: u64) -> File {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC).unwrap());
        file.set_len(length).unwrap();
        file
    }

    #[test]
    fn only_executable_memfds_of_the_right_name_and_size_are_stubs() {
        let code = libc::PROT_READ | libc::PROT_EXEC;
        let size = layout::CODE_SIZE;
        let stub = Mapping::new(&memfd(layout::MEMFD_NAME, size), size, code);
        let others = [
            Mapping::new(&memfd("memtrace-stub2", size), size, code),
            Mapping::new(&memfd(layout::MEMFD_NAME, size), size, libc::PROT_READ),
            Mapping::new(&memfd(layout::MEMFD_NAME, size), size / 2, code),
        ];
        let found: Vec<_> = stubs(own()).unwrap().into_iter().map(|stub| stub.base).collect();
        assert!(found.contains(&stub.start()), "{found:?}");
        assert!(others.iter().all(|other| !found.contains(&other.start())), "{found:?}");
        let all = patched_processes();
        assert!(all.contains(&(own(), stub.start())), "{all:?}");
    }

    #[test]
    fn stubs_are_known_by_their_files_and_addresses() {
        let (code, size) = (libc::PROT_READ | libc::PROT_EXEC, layout::CODE_SIZE);
        let (file, other) = (memfd(layout::MEMFD_NAME, size), memfd(layout::MEMFD_NAME, size));
        let mapping = Mapping::new(&file, size, code);
        let inode = |file: &File| {
            let facts = file.metadata().unwrap();
            Inode { device: facts.dev(), inode: facts.ino() }
        };
        let stub = PatchedStub { base: mapping.start(), file: inode(&file) };
        let mut known = BTreeSet::from([Pid(u32::MAX)]);
        let all = PatchedStub::of_new_processes(&mut known);
        assert!(all.contains(&(own(), stub)), "{all:?}");
        assert!(!all.contains(&(own(), PatchedStub { file: inode(&other), ..stub })));
        assert!(known.contains(&own()) && !known.contains(&Pid(u32::MAX)), "{known:?}");
        let new = PatchedStub::of_new_processes(&mut known);
        assert!(new.iter().all(|(pid, _)| *pid != own()), "{new:?}");
    }

    #[test]
    fn lock_of_a_stub_is_that_of_an_open_file() {
        let file = memfd(layout::MEMFD_NAME, layout::CODE_SIZE);
        let reopen = || File::open(crate::procfs::descriptor_path(&file)).unwrap();
        let (first, second) = (reopen(), reopen());
        assert!(PatchedStub::lock(first.as_fd()).unwrap());
        assert!(!PatchedStub::lock(second.as_fd()).unwrap());
        assert!(PatchedStub::lock(first.as_fd()).unwrap(), "its own lock");
        // Another test can have forked this process, with copies of its descriptors. So the lock is removed by a call.
        flock(&first, FlockOperation::Unlock).unwrap();
        assert!(PatchedStub::lock(second.as_fd()).unwrap());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn lock_of_another_file_is_found_and_left_alone() {
        let file = memfd(layout::MEMFD_NAME, layout::CODE_SIZE);
        let mapping = Mapping::new(&file, layout::CODE_SIZE, libc::PROT_READ | libc::PROT_EXEC);
        // The links need a capability.
        if open_mapped_stub(own(), mapping.start().0).is_err() {
            return;
        }
        let facts = file.metadata().unwrap();
        let inode = Inode { device: facts.dev(), inode: facts.ino() };
        let stub = PatchedStub { base: mapping.start(), file: inode };
        assert!(!stub.is_locked(own()));
        assert!(PatchedStub::lock(file.as_fd()).unwrap(), "the look has left no lock");
        assert!(stub.is_locked(own()));
        flock(&file, FlockOperation::Unlock).unwrap();
        assert!(!stub.is_locked(own()));
    }

    #[test]
    fn code_is_read_from_a_process_with_a_stub() {
        let pages = harness::fixtures::Anonymous::new(8192);
        let (base, code) = (pages.start(), AbsAddr(pages.start().0 + 4096));
        pages.write(4096, 0x0807_0605_0403_0201);
        let read = || PatchedStub::code_at(own(), base, vec![code, AbsAddr(8)]);
        assert_eq!(read().unwrap_err().kind(), io::ErrorKind::InvalidData, "no stub");
        pages.write(0, u64::from_le_bytes(layout::MAGIC));
        assert_eq!(read().unwrap(), [Some([1, 2, 3, 4, 5]), None]);
    }

    #[test]
    fn inode_of_a_mapping_is_found_by_its_addresses() {
        let file = memfd("code", 4096);
        let mapping = Mapping::new(&file, 4096, libc::PROT_READ);
        let facts = file.metadata().unwrap();
        let inode = Inode { device: facts.dev(), inode: facts.ino() };
        let at = |offset: u64| mapped_inode(own(), AbsAddr(mapping.start().0 + offset));
        assert_eq!([at(0), at(4095)], [Some(inode); 2]);
        assert_ne!(at(4096), Some(inode));
        assert_eq!(mapped_inode(own(), AbsAddr(0)), None);
    }

    #[test]
    fn file_with_the_name_of_a_stub_is_none() {
        let device = memfd_device().unwrap();
        let line = |device: u64, rest: &str| {
            let (major, minor) = (libc::major(device), libc::minor(device));
            format!("7f0000000000-7f0000008000 {rest} {major:02x}:{minor:02x} 7    {}", layout::MAPS_PATH)
        };
        let is_found = |line: String| is_stub(&MapsEntry::parse(line.as_bytes()).unwrap(), device);
        assert!(is_found(line(device, "r-xp 00000000")));
        assert!(!is_found(line(device + 1, "r-xp 00000000")), "another file system");
        assert!(!is_found(line(device, "r-xs 00000000")));
        assert!(!is_found(line(device, "rwxp 00000000")));
        assert!(!is_found(line(device, "r-xp 00001000")));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn only_the_memfd_of_a_stub_is_opened() {
        let descriptor = |file: &File| file.as_raw_fd().cast_unsigned();
        let kind = |result: io::Result<File>| result.map(drop).map_err(|error| error.kind());
        let new = memfd(layout::MEMFD_NAME, 0);
        let opened = open_new_stub(own(), descriptor(&new)).unwrap();
        opened.write_all_at(b"code", 0).unwrap();
        assert_eq!(new.metadata().unwrap().len(), 4);
        let refused = Err(io::ErrorKind::InvalidData);
        assert_eq!(kind(open_new_stub(own(), descriptor(&new))), refused, "it is not empty any more");
        assert!(is_stub_descriptor(own(), descriptor(&new)));
        let (other, null) = (memfd("other", 0), File::open("/dev/null").unwrap());
        for file in [&other, &null] {
            assert_eq!(kind(open_new_stub(own(), descriptor(file))), refused);
            assert!(!is_stub_descriptor(own(), descriptor(file)));
        }
        assert!(!is_stub_descriptor(own(), u32::MAX));
        let mapped = memfd(layout::MEMFD_NAME, layout::CODE_SIZE);
        let stub = Mapping::new(&mapped, layout::CODE_SIZE, libc::PROT_READ);
        let reopened = open_mapped_stub(own(), stub.start().0);
        // The links need a capability.
        if reopened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return;
        }
        assert_eq!(reopened.unwrap().metadata().unwrap().ino(), mapped.metadata().unwrap().ino());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn memory_is_opened_through_threads_of_the_process_only() {
        let value = 0x1234_5678_u64;
        let mut read = [0; 8];
        let memory = open_thread_memory(own(), own().0).unwrap();
        memory.read_exact_at(&mut read, (&raw const value) as u64).unwrap();
        assert_eq!(u64::from_ne_bytes(read), value);
        let parent = std::os::unix::process::parent_id();
        assert!(open_thread_memory(own(), parent).is_err());
    }

    #[test]
    fn control_page_is_read_and_its_shift_is_written() {
        let pages = harness::fixtures::Anonymous::new(layout::CODE_SIZE + 4096);
        let control = layout::CODE_SIZE;
        for (offset, value) in [(0x00, 11), (0x08, 1 << 20), (0x18, 4), (0x28, 2), (0x30, 77), (0x68, 12), (0x70, 13)] {
            pages.write(control + offset, value);
        }
        let page = ControlPage::open(own(), pages.start()).unwrap();
        page.set_shift(3).unwrap();
        let expected = ControlValues {
            epoch: 11,
            interval_base: 1 << 20,
            shift: 3,
            level: 4,
            in_cold: 2,
            drawn: 77,
            owner: (12, 13),
            ..ControlValues::default()
        };
        assert_eq!([page.read().unwrap(), ControlPage::read_once(own(), pages.start()).unwrap()], [expected; 2]);
        assert_eq!(pages.read(control + 0x10), 3, "only one byte is written");
        assert!(ControlPage::open(own(), AbsAddr(u64::MAX)).is_err());
        assert!(ControlPage::read_once(own(), AbsAddr(u64::MAX)).is_err());
    }
}
