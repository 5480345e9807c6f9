//! Files of the stubs of patched processes.

use std::fs::{self, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use memtrace_host::procfs::{self, Inode};

/// File of a stub. Forked children have the same file, with the same probes in it.
#[derive(Debug)]
pub(super) struct StubFile {
    /// Path of the open descriptor. Its probes are attached with this path.
    pub(super) path: PathBuf,
    /// `None` if it is not known.
    pub(super) inode: Option<Inode>,
    /// The descriptor stays open, so that no other file gets its path. It also holds the lock of the file. The lock
    /// shows other memtraces that this memtrace samples the processes.
    _descriptor: OwnedFd,
}

impl StubFile {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        let (path, inode) = (procfs::descriptor_path(&descriptor), inode_of(&descriptor));
        Self { path, inode, _descriptor: descriptor }
    }
}

/// Returns the device and the inode of an open file.
pub(super) fn inode_of(descriptor: &OwnedFd) -> Option<Inode> {
    let inode = |facts: Metadata| Inode { device: facts.dev(), inode: facts.ino() };
    fs::metadata(procfs::descriptor_path(descriptor)).ok().map(inode)
}
