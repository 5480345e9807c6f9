//! Messages between memtrace and the server of files.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{AtFlags, StatxFlags, makedev, statx};
use serde::{Deserialize, Serialize};

/// Maximum length of a path (`PATH_MAX`).
pub(super) const MAX_PATH: usize = 4096;

/// Maximum length of an encoded [`Call`].
pub(super) const MAX_CALL: usize = 2 * MAX_PATH;

/// Maximum length of an encoded [`Reply`].
pub(super) const MAX_REPLY: usize = 256;

/// A file to look up. The first descriptor is the socket for the reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Call {
    /// Path below the directory of the second descriptor; `None` for the file of this descriptor itself.
    pub(super) path: Option<Vec<u8>>,
    pub(super) links: Links,
    pub(super) wants: Wants,
    /// True if a process without privileges may have mounted the file system.
    pub(super) by_user: bool,
    /// Number of the owner that is charged if the file does not answer.
    pub(super) owner: u64,
    /// Number of the same owner without its mount namespace.
    pub(super) user: u64,
    /// Maximum size of a copy, in bytes.
    pub(super) max_copy: u64,
}

impl Call {
    /// Creates a call. The client adds the numbers of the owner, and the maximum size of a copy.
    pub(super) const fn new(path: Option<Vec<u8>>, (links, wants): (Links, Wants), by_user: bool) -> Self {
        Self { path, links, wants, by_user, owner: 0, user: 0, max_copy: 0 }
    }
}

/// Treatment of symbolic links in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Links {
    Follow,
    /// A link at the end of the path is not followed. The lookup finds the link itself, which is not a regular file.
    KeepLast,
    /// Links are an error. The path of a mapping had no links when the file was mapped.
    Refuse,
}

/// Requested result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wants {
    /// Only the facts about the file.
    Facts,
    /// The facts about the file, and its content.
    Content,
    /// Memory of a process: the file is `/proc/PID/mem`, and further requests come through the socket for the reply.
    Memory,
    /// Only a run of a BPF program with the address of a mapping of the file. The program is the descriptor after the file.
    Run,
}

/// Maximum length of a read of memory.
pub(super) const MAX_MEMORY: usize = 4096;

/// Maximum length of an encoded [`MemoryRange`] or [`MemoryBytes`].
pub(super) const MAX_MEMORY_MESSAGE: usize = MAX_MEMORY + 64;

/// Memory to read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct MemoryRange {
    pub(super) address: u64,
    pub(super) length: u32,
}

/// Bytes from the address on. There are fewer bytes if a page is not readable, and 0 bytes if the process now has another memory.
/// `None` if the first page is not readable.
pub(super) type MemoryBytes = Option<Vec<u8>>;

/// Facts about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time of the last change: seconds and nanoseconds.
    pub changed: (i64, u32),
    pub(crate) size: u64,
    /// 512-byte units of disk space.
    pub(crate) blocks: u64,
    pub(crate) links: u32,
    pub(crate) owner: u32,
    mode: u16,
    /// Major device number: 0 for a file system without a block device.
    pub(super) major: u32,
    /// Id of the mount; 0 before Linux 6.8. The kernel does not reuse it.
    pub(super) mount: u64,
}

/// Request for the id of a mount (`STATX_MNT_ID_UNIQUE`, include/uapi/linux/stat.h).
const MOUNT_ID: StatxFlags = StatxFlags::from_bits_retain(0x4000);

impl Facts {
    /// Reads the facts about an open file. With [`AtFlags::STATX_DONT_SYNC`], FUSE and network file systems answer from their
    /// cache (statx(2)).
    pub(super) fn read(file: impl AsFd, flags: AtFlags) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS.union(MOUNT_ID);
        let found = statx(file, c"", flags | AtFlags::EMPTY_PATH, wanted)?;
        Ok(Self {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
            size: found.stx_size,
            blocks: found.stx_blocks,
            links: found.stx_nlink,
            owner: found.stx_uid,
            mode: found.stx_mode,
            major: found.stx_dev_major,
            mount: if found.stx_mask & MOUNT_ID.bits() == 0 { 0 } else { found.stx_mnt_id },
        })
    }

    /// Returns true if the mode of the file permits every user to read it.
    pub(crate) const fn is_readable_by_all(&self) -> bool {
        self.mode & 0o004 != 0
    }

    pub(crate) const fn is_regular(&self) -> bool {
        self.mode as u32 & libc::S_IFMT == libc::S_IFREG
    }
}

/// Message of a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// There is no worker: the server could not fork in time.
    NoWorker,
    /// The worker has started, or has copied more of the file since its last message.
    Progress,
    /// The result, and the time that the worker waited for the file system.
    Done(Answer, Duration),
}

/// Result of a call. Its descriptors are the looked-up file (`O_PATH`) and the copy of the file, if they exist.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The facts, and the type of the file system; the number of the error if the file was not found.
    pub(super) found: Result<(Facts, i64), i32>,
    /// Number of the error if the file was not opened or not copied.
    pub(super) error: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_server::encode;

    #[test]
    fn longest_messages_fit_into_their_buffers() {
        let facts = Facts {
            device: u64::MAX,
            inode: u64::MAX,
            changed: (i64::MIN, u32::MAX),
            size: u64::MAX,
            blocks: u64::MAX,
            links: u32::MAX,
            owner: u32::MAX,
            mode: u16::MAX,
            major: u32::MAX,
            mount: u64::MAX,
        };
        let answer = Answer { found: Ok((facts, i64::MIN)), error: Some(i32::MIN) };
        let call = Call {
            owner: u64::MAX,
            user: u64::MAX,
            max_copy: u64::MAX,
            ..Call::new(Some(vec![0xff; MAX_PATH - 1]), (Links::Refuse, Wants::Run), true)
        };
        let range = MemoryRange { address: u64::MAX, length: u32::MAX };
        let bytes: MemoryBytes = Some(vec![0xff; MAX_MEMORY]);
        assert!(encode(&Reply::Done(answer, Duration::MAX)).unwrap().len() <= MAX_REPLY);
        assert!(encode(&call).unwrap().len() <= MAX_CALL);
        assert!(encode(&range).unwrap().len() <= MAX_MEMORY_MESSAGE);
        assert!(encode(&bytes).unwrap().len() <= MAX_MEMORY_MESSAGE);
    }
}
