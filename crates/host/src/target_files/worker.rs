//! Looks up, opens and copies a file, or reads memory. All waits for a file system are here.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags, fcntl_add_seals, fstatfs, memfd_create, open, openat2,
};

use super::file_systems::{Kind, UNKNOWN};
use super::protocol::{Answer, Call, Facts, Links, MAX_MEMORY, MAX_MEMORY_MESSAGE, MemoryBytes, MemoryRange, Wants};
use crate::bpf_call;
use crate::own_mapping::OwnMapping;
use crate::own_server;
use crate::procfs::descriptor_path;

/// Maximum size of a file that is opened. Debug information has some gigabytes; a sparse file can have any size.
const MAX_SIZE: u64 = 1 << 36;

/// Bytes that are copied between two messages about progress.
const CHUNK: u64 = 8 << 20;

/// Executes a call. `descriptors`: the directory or the file itself, perhaps a program. `progress` is called while the file is
/// read. It returns false if the client does not wait any more.
pub(super) fn run(call: &Call, descriptors: Vec<OwnedFd>, progress: impl FnMut() -> bool) -> (Answer, Vec<OwnedFd>) {
    let mut descriptors = descriptors.into_iter();
    let Some(target) = descriptors.next() else {
        return (Answer { found: Err(libc::EINVAL), error: None }, Vec::new());
    };
    let seen = match &call.path {
        Some(path) => look_up(&target, Path::new(OsStr::from_bytes(path)), call.links, ResolveFlags::empty()),
        None => Ok(target),
    };
    // A file system that a process serves can fail statfs(2).
    let type_of = |seen: &OwnedFd| fstatfs(seen).map_or(UNKNOWN, |found| found.f_type);
    let found = seen.and_then(|seen| Ok((Facts::read(&seen, AtFlags::empty())?, type_of(&seen), seen)));
    let (facts, file_system, seen) = match found {
        Ok(found) => found,
        Err(error) => return (Answer { found: Err(number(&error)), error: None }, Vec::new()),
    };
    let kind = Kind::of_file_system(file_system, &facts, call.by_user);
    let copied = match (call.wants, kind) {
        (Wants::Content, Kind::Served) => {
            open_seen(&seen, &facts, kind).and_then(|file| copy(&file, call.max_copy, progress)).map(Some)
        }
        (Wants::Run, _) => {
            open_seen(&seen, &facts, kind).and_then(|file| run_on(&file, descriptors.next(), progress)).map(|()| None)
        }
        (Wants::Facts | Wants::Memory, _) | (_, Kind::Local | Kind::Overlay | Kind::Generated) => Ok(None),
    };
    let error = copied.as_ref().err().map(number);
    (
        Answer { found: Ok((facts, file_system)), error },
        [Some(seen), copied.ok().flatten()].into_iter().flatten().collect(),
    )
}

/// Looks up `path` below a directory, without opening it. Links do not lead out of the directory (`RESOLVE_IN_ROOT`,
/// openat2(2), Linux 5.6).
pub(super) fn look_up(directory: &OwnedFd, path: &Path, links: Links, further: ResolveFlags) -> io::Result<OwnedFd> {
    let (no_follow, no_links) = match links {
        Links::Follow => (OFlags::empty(), ResolveFlags::empty()),
        Links::KeepLast => (OFlags::NOFOLLOW, ResolveFlags::empty()),
        Links::Refuse => (OFlags::empty(), ResolveFlags::NO_SYMLINKS),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC | no_follow;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | no_links | further;
    Ok(openat2(directory, path, flags, Mode::empty(), resolve)?)
}

/// Opens the file for reading. Only regular files are opened: opening a device can have side effects, and opening a pipe can
/// block for ever. Opening a file that the kernel generates can do both.
pub(super) fn open_seen(seen: &OwnedFd, facts: &Facts, kind: Kind) -> io::Result<File> {
    if !facts.is_regular() || kind == Kind::Generated {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if facts.size > MAX_SIZE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // O_NONBLOCK: do not wait until another process gives up a lease on the file (fcntl(2), F_SETLEASE).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(descriptor_path(seen), flags, Mode::empty())?.into())
}

/// Maps a file, and runs a program with the address.
fn run_on(file: &File, program: Option<OwnedFd>, mut progress: impl FnMut() -> bool) -> io::Result<()> {
    let mapping = OwnMapping::new(file)?;
    let program = program.filter(|_| progress()).ok_or(io::ErrorKind::InvalidData)?;
    bpf_call::run_program(program.as_fd(), mapping.start().0)
}

/// Answers requests for memory until the client closes its socket. `before`: called before each read.
pub(super) fn serve_memory(socket: BorrowedFd<'_>, memory: OwnedFd, before: impl Fn()) -> io::Result<()> {
    let memory = File::from(memory);
    while let Some((range, _)) = own_server::receive(socket, MAX_MEMORY_MESSAGE)? {
        before();
        own_server::send(socket, &read_range(&memory, range), &[])?;
    }
    Ok(())
}

pub(super) fn read_range(memory: &File, MemoryRange { address, length }: MemoryRange) -> MemoryBytes {
    let mut bytes = vec![0; (length as usize).min(MAX_MEMORY)];
    // A read stops before a page that is not mapped.
    let count = memory.read_at(&mut bytes, address).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

/// Returns a copy in memory that nobody can change.
fn copy(file: &File, most: u64, mut progress: impl FnMut() -> bool) -> io::Result<OwnedFd> {
    let mut copy: File = memfd_create("memtrace-file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into();
    let mut left = most;
    while let bytes @ 1.. = io::copy(&mut file.take(CHUNK), &mut copy)? {
        left = left.checked_sub(bytes).ok_or(io::ErrorKind::FileTooLarge)?;
        if !progress() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    copy.rewind()?;
    fcntl_add_seals(&copy, SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(copy.into())
}

/// Returns the number of an error for an answer. Errors of the library get numbers of the same kind.
fn number(error: &io::Error) -> i32 {
    let of_kind = match error.kind() {
        io::ErrorKind::FileTooLarge => libc::EFBIG,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    };
    error.raw_os_error().unwrap_or(of_kind)
}

#[cfg(test)]
mod tests {
    use harness::Scratch;

    use super::*;

    #[test]
    fn reads_of_memory_have_a_maximum_length() {
        let scratch = Scratch::new();
        let memory = File::open(scratch.write("memory", &[7; 2 * MAX_MEMORY])).unwrap();
        let length = |address: usize, length: usize| {
            let range = MemoryRange { address: address as u64, length: u32::try_from(length).unwrap() };
            read_range(&memory, range).map(|bytes| bytes.len())
        };
        for (wanted, expected) in [(0, 0), (MAX_MEMORY - 1, MAX_MEMORY - 1), (MAX_MEMORY, MAX_MEMORY)] {
            assert_eq!(length(0, wanted), Some(expected));
        }
        assert_eq!(length(0, MAX_MEMORY + 1), Some(MAX_MEMORY));
        assert_eq!(length(0, u32::MAX as usize), Some(MAX_MEMORY));
        // The file ends there.
        assert_eq!(length(2 * MAX_MEMORY - 1, 100), Some(1));
        assert_eq!(length(2 * MAX_MEMORY, 100), Some(0));
    }

    #[test]
    fn copies_have_a_maximum_size() {
        let scratch = Scratch::new();
        let copied = |size: usize, most: u64| -> Result<(), io::ErrorKind> {
            let file = File::open(scratch.write("file", &vec![7; size])).unwrap();
            let copy = copy(&file, most, || true).map_err(|error| error.kind())?;
            let mut bytes = Vec::new();
            File::from(copy).read_to_end(&mut bytes).unwrap();
            assert!(bytes == vec![7; size], "{size}");
            Ok(())
        };
        assert_eq!([0, 99, 100].map(|size| copied(size, 100)), [Ok(()); 3]);
        assert_eq!(copied(101, 100), Err(io::ErrorKind::FileTooLarge));
        // The size is checked after each part, not only at the end.
        let part = usize::try_from(CHUNK).unwrap();
        assert_eq!(copied(part, CHUNK), Ok(()));
        assert_eq!(copied(part + 1, CHUNK), Err(io::ErrorKind::FileTooLarge));
    }
}
