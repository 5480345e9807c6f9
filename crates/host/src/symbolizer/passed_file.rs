//! Files that a worker can open, and that do not change while it reads them.

use std::fs::{File, Metadata};
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A file for a worker.
#[derive(Debug)]
pub(super) struct PassedFile {
    pub(super) descriptor: OwnedFd,
    /// Size in bytes, which the worker maps.
    pub(super) size: u64,
    /// False if the file itself is passed.
    pub(super) is_copy: bool,
}

impl PassedFile {
    /// Returns the file itself if every user can read it and only root can change it; otherwise a sealed copy. A file that is
    /// too large for a copy is passed itself if every user can read it.
    ///
    /// A worker opens files again by `/proc/self/fd`, which checks the permissions of the worker's user. If another
    /// process truncates a file while the worker has it mapped, the worker is killed by SIGBUS.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::FileTooLarge`] if the copy would have more than `max_copy` bytes; errors of memfd_create(2) and of
    /// the file system.
    pub(super) fn of(file: &File, max_copy: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let is_small = metadata.len() <= max_copy;
        if is_stable(&metadata) || !is_small && is_readable(&metadata) {
            return Ok(Self { descriptor: file.try_clone()?.into(), size: metadata.len(), is_copy: false });
        }
        if !is_small {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut copy = sealable("memtrace-object")?;
        let mut from = file.try_clone()?;
        from.rewind()?;
        let size = io::copy(&mut io::Read::take(from, max_copy), &mut copy)?;
        copy.rewind()?;
        Ok(Self { descriptor: sealed(copy)?, size, is_copy: true })
    }
}

/// Returns a sealed memfd with `content`.
pub(super) fn memory_with(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = sealable("memtrace-request")?;
    io::Write::write_all(&mut file, content)?;
    file.rewind()?;
    sealed(file)
}

fn sealable(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

fn sealed(file: File) -> io::Result<OwnedFd> {
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file.into())
}

/// Returns true if every user can read the file.
fn is_readable(metadata: &Metadata) -> bool {
    metadata.mode() & 0o004 != 0
}

/// Returns true if every user can read the file, and only root can change it.
fn is_stable(metadata: &Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    metadata.uid() == 0 && is_readable(metadata) && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::PermissionsExt as _;

    use harness::Scratch;
    use harness::fixtures::assert_root;
    use rustix::fs::fcntl_get_seals;

    use super::*;
    use crate::copy_limit::MAX_COPY;

    #[test]
    fn privileged_only_files_that_root_alone_can_change_are_passed_themselves() {
        assert_root();
        let scratch = Scratch::new();
        let path = scratch.path("object");
        fs::write(&path, "content").unwrap();
        let is_copy = |mode, uid| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&path, Some(uid), None).unwrap();
            let passed = PassedFile::of(&File::open(&path).unwrap(), MAX_COPY).unwrap();
            assert_eq!(passed.size, 7);
            let is_sealed =
                fcntl_get_seals(passed.descriptor.as_fd()).is_ok_and(|seals| seals.contains(SealFlags::WRITE));
            let mut text = String::new();
            File::from(passed.descriptor).read_to_string(&mut text).unwrap();
            (is_sealed, text)
        };
        assert_eq!(is_copy(0o755, 0), (false, "content".into()));
        for (mode, uid) in [(0o750, 0), (0o775, 0), (0o757, 0), (0o755, 1000)] {
            let (is_sealed, _) = is_copy(mode, uid);
            assert!(is_sealed, "{mode:o} {uid}");
        }
    }

    #[test]
    fn copy_has_a_limit() {
        let scratch = Scratch::new();
        let file = File::options().read(true).write(true).create_new(true).open(scratch.path("sparse")).unwrap();
        file.set_len(MAX_COPY + 1).unwrap();
        fs::set_permissions(scratch.path("sparse"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(PassedFile::of(&file, MAX_COPY).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
