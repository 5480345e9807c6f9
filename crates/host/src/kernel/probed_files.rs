//! Files that are safe to probe.
//!
//! To insert a breakpoint, the kernel reads the page of the instruction. No process can fork during the read, because the
//! kernel holds `dup_mmap_sem` (`register_for_each_vma`, kernel/events/uprobes.c). If a user serves the file by FUSE, the page
//! may never arrive.

use std::path::{Path, PathBuf};

use memtrace_common::unwind::FileIdReply;

use super::attach_point::shown;
use super::bpf::Bpf;
use super::error::KernelError;
use super::file_id;
use crate::procfs::is_served_by_root;
use crate::target_files::LinkedFile;

/// Types of file systems (include/uapi/linux/magic.h).
const FUSE: u32 = 0x6573_5546;
const OVERLAY: u32 = 0x794c_7630;

/// Reason why an object gets no probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A user serves the file by FUSE. While the kernel waits for a page of the file, no process of the machine can fork.
    Served,
    /// The file system of the pages is unknown: the lookup took too long, or failed.
    Unknown,
    /// The kernel does not attach the probes.
    Failed,
}

impl Refusal {
    /// Returns the reason as a sentence.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Served => "a user serves the file, and could hold up the whole machine while a probe is inserted",
            Self::Unknown => {
                "memtrace could not find out whether a user serves the file, who could hold up the whole machine while a \
                 probe is inserted"
            }
            Self::Failed => "the kernel does not attach them",
        }
    }
}

/// A file that is safe to probe. The kernel finds the same file by [`Self::path`].
pub(super) struct ProbedFile(LinkedFile);

impl ProbedFile {
    /// Looks up the file at `path` without reading it. Refuses the file if a user could withhold its pages.
    pub(super) fn find(bpf: &mut Bpf, path: &Path) -> Result<Result<Self, Refusal>, KernelError> {
        let file = LinkedFile::at(path).map_err(|error| {
            let reason = error.to_string();
            KernelError::from_io(&format!("attach probes to {}", shown(path)), error, reason)
        })?;
        let refusal = match file.has_foreign_pages() {
            Ok(false) => None,
            Ok(true) => match file_id::by_worker(bpf, &file) {
                Some(found) => (!is_safe(&found)).then_some(Refusal::Served),
                None => Some(Refusal::Unknown),
            },
            Err(_) => Some(Refusal::Unknown),
        };
        Ok(refusal.map_or(Ok(Self(file)), Err))
    }

    /// Returns a path that leads to this file.
    pub(super) fn path(&self) -> PathBuf {
        self.0.path()
    }
}

/// Returns true if no user can serve the file. Users can serve files by FUSE, and by an overlay of FUSE. They can mount no
/// other served file systems (`FS_USERNS_MOUNT` in the kernel's sources).
fn is_safe(FileIdReply { object, file_system, .. }: &FileIdReply) -> bool {
    match *file_system {
        FUSE => is_served_by_root(object.device >> 20, object.device & 0xf_ffff),
        OVERLAY => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::procfs::descriptor_path;

    #[test]
    fn a_memfd_has_pages_of_its_own() {
        let file = File::from(memfd_create("memtrace-stub", MemfdFlags::CLOEXEC).unwrap());
        let linked = LinkedFile::at(&descriptor_path(&file)).unwrap();
        assert!(!linked.has_foreign_pages().unwrap() && !linked.can_wait().unwrap());
    }
}
