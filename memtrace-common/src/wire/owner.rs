//! User and cgroups of a process, and the paths of cgroups that were removed.

use core::mem::{offset_of, size_of};

use super::Header;

/// Maximum number of cgroup hierarchies that are recorded: version 2, and `name=systemd` and `memory` of version 1.
pub const HIERARCHIES: usize = 3;

/// Id that stands for a missing hierarchy in [`super::Settings::hierarchies`].
pub const NO_HIERARCHY: u32 = u32::MAX;

/// User and cgroups of a process at the end of an image. The record precedes the record of the exec or exit, in every
/// ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OwnerRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Effective user id at an exit. At an exec, the real user id, because the exec can change the effective one.
    pub user: u32,
    /// Real user id, as in the process filter.
    pub real_user: u32,
    /// Id of the cgroup in each of [`super::Settings::hierarchies`]; 0 if it is not known.
    pub cgroups: [u64; HIERARCHIES],
}

/// Maximum length of a path in the tracepoints of cgroups (`TRACE_CGROUP_PATH_LEN`, kernel/cgroup/cgroup-internal.h).
pub const REMOVED_PATH: usize = 1024;

/// A cgroup that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RemovedCgroupRecord {
    /// Id of the cgroup.
    pub id: u64,
    /// The kernel's id of the cgroup's hierarchy.
    pub hierarchy: u32,
    /// Length of the path in bytes, with the terminating null; 0 if the path could not be read.
    pub length: u32,
    /// Path from the root of the hierarchy. Bytes after the terminating null are arbitrary.
    pub path: [u8; REMOVED_PATH],
}

const _: () = {
    assert!(size_of::<OwnerRecord>() == 48);
    assert!(offset_of!(OwnerRecord, user) == 16);
    assert!(offset_of!(OwnerRecord, real_user) == 20);
    assert!(offset_of!(OwnerRecord, cgroups) == 24);
    assert!(size_of::<RemovedCgroupRecord>() == 16 + REMOVED_PATH);
    assert!(offset_of!(RemovedCgroupRecord, path) == 16);
};
