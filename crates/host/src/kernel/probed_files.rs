//! Files in which probes are safe.
//!
//! To insert a breakpoint, the kernel reads the page of the instruction, and no process can fork until then: it holds
//! `dup_mmap_sem` (`register_for_each_vma`, kernel/events/uprobes.c). If a user serves the file by FUSE, the page may never
//! arrive.

use std::io;
use std::path::Path;

use memtrace_common::unwind::FileIdReply;

use super::bpf::Bpf;
use super::error::KernelError;
use super::file_id;
use crate::procfs::is_served_by_root;
use crate::target_files::can_wait;

/// Types of file systems (include/uapi/linux/magic.h).
const FUSE: u32 = 0x6573_5546;
const OVERLAY: u32 = 0x794c_7630;

/// Checks that a user cannot withhold the pages of the file at `path`.
pub(super) fn check(bpf: &mut Bpf, path: &Path) -> Result<(), KernelError> {
    let is_safe = match can_wait(path) {
        Ok(false) => true,
        // An overlay has the pages of another file system.
        Ok(true) => file_id::of_path(bpf, path).is_some_and(|found| is_safe(&found)),
        Err(error) => error.kind() != io::ErrorKind::TimedOut,
    };
    if is_safe { Ok(()) } else { Err(KernelError::ServedFile) }
}

/// Users can mount no other file systems that are served (`FS_USERNS_MOUNT` in the kernel's sources).
fn is_safe(FileIdReply { object, file_system, .. }: &FileIdReply) -> bool {
    match *file_system {
        FUSE => is_served_by_root(object.device >> 20, object.device & 0xf_ffff),
        OVERLAY => false,
        _ => true,
    }
}
