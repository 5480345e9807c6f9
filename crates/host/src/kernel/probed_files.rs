//! Files in which probes are safe.
//!
//! To insert a breakpoint, the kernel reads the page of the instruction, and no process can fork until then: it holds
//! `dup_mmap_sem` (`register_for_each_vma`, kernel/events/uprobes.c). If a user serves the file by FUSE, the page may never
//! arrive.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use memtrace_common::unwind::FileIdReply;
use memtrace_model::printable;

use super::bpf::Bpf;
use super::error::KernelError;
use super::file_id;
use crate::procfs::{descriptor_path, is_served_by_root};
use crate::target_files::{has_foreign_pages, see};

/// Types of file systems (include/uapi/linux/magic.h).
const FUSE: u32 = 0x6573_5546;
const OVERLAY: u32 = 0x794c_7630;

/// A file in which probes are safe. The kernel finds the same file by its path.
pub(super) struct ProbedFile(OwnedFd);

impl ProbedFile {
    /// Opens the file at `path` without reading it, and checks that a user cannot withhold its pages.
    pub(super) fn open(bpf: &mut Bpf, path: &Path) -> Result<Self, KernelError> {
        let file = Self(see(path).map_err(|error| {
            let reason = error.to_string();
            KernelError::from_io(&format!("attach probes to {}", printable(path)), error, reason)
        })?);
        let is_safe = match has_foreign_pages(&file.path()) {
            Ok(false) => true,
            Ok(true) => file_id::by_worker(bpf, &file.path()).is_some_and(|found| is_safe(&found)),
            Err(_) => false,
        };
        if is_safe { Ok(file) } else { Err(KernelError::ServedFile) }
    }

    /// Returns a path that leads to this file.
    pub(super) fn path(&self) -> PathBuf {
        descriptor_path(&self.0)
    }
}

/// Users can mount no other file systems that are served (`FS_USERNS_MOUNT` in the kernel's sources).
fn is_safe(FileIdReply { object, file_system, .. }: &FileIdReply) -> bool {
    match *file_system {
        FUSE => is_served_by_root(object.device >> 20, object.device & 0xf_ffff),
        OVERLAY => false,
        _ => true,
    }
}
