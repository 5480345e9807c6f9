//! File systems: some generate their files, and some can make a reader wait for ever.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::protocol::Facts;
use crate::procfs::is_9p_of_host;

/// Kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A disk or memory of this machine answers.
    Local,
    /// Like [`Self::Local`], but the files can belong to other file systems.
    Overlay,
    /// The kernel generates the files.
    Generated,
    /// A process or another machine answers. It may never do so.
    Served,
}

/// Stands for an unknown type: no file system has this number.
pub(super) const UNKNOWN: i64 = 0;

/// File systems with content that the kernel generates (include/uapi/linux/magic.h).
const GENERATED: [i64; 11] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x4249_4e4d, // binfmt_misc
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
];

/// File systems on disks and in memory (include/uapi/linux/magic.h, and the sources of each).
const LOCAL: [i64; 23] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
    0x2fc1_2fc1, // zfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x3153_464a, // jfs
    0x5265_4973, // reiserfs
    0x3434,      // nilfs
    0x2405_1905, // ubifs
    0x72b6,      // jffs2
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x7366_746e, // ntfs3
    0x9660,      // iso9660
    0x1501_3346, // udf
    0x28cd_3d45, // cramfs
    0x0187,      // autofs: its directories, before anything is mounted
];

/// The host of a virtual machine answers, as for its disks, or another machine does.
const PLAN_9: i64 = 0x0102_1997;

/// A user can put an overlay on a FUSE file system. memtrace then reads as this user (`ovl_override_creds`,
/// fs/overlayfs/util.c). So FUSE does not refuse memtrace, as it refuses other users.
const OVERLAY: i64 = 0x794c_7630;

/// Major device numbers of block devices that a process or another machine can serve: loop devices and network block devices
/// (Documentation/admin-guide/devices.txt).
const SERVED_DEVICES: [u32; 2] = [7, 43];

/// Maximum number of known file systems.
const MOST: usize = 4096;

/// Kinds of file systems by device number and id of the mount. After an unmount, another file system can get the device number.
/// No other mount gets the id, if the kernel has unique ids.
static KNOWN: Mutex<Option<HashMap<[u64; 2], Kind>>> = Mutex::new(None);

impl Kind {
    /// Returns the kind of a file system by its type and a file of it. `by_user`: as in [`Call`](super::protocol::Call).
    pub(super) fn of_file_system(file_system: i64, facts: &Facts, by_user: bool) -> Self {
        Self::of_type(file_system, || is_9p_of_host(facts.device), by_user)
    }

    fn of_type(file_system: i64, is_of_host: impl Fn() -> bool, by_user: bool) -> Self {
        match file_system {
            PLAN_9 if is_of_host() => Self::Local,
            _ if GENERATED.contains(&file_system) => Self::Generated,
            OVERLAY if by_user => Self::Served,
            OVERLAY => Self::Overlay,
            _ if LOCAL.contains(&file_system) => Self::Local,
            _ => Self::Served,
        }
    }

    /// Returns the kind of the file system of a file, without a request to the file system; `None` if it is not known.
    pub(super) fn of_file(facts: &Facts, by_user: bool) -> Option<Self> {
        let has_disk = facts.major != 0 && !SERVED_DEVICES.contains(&facts.major);
        let known = with_known(|known| known.get(&key(facts)).copied());
        match known {
            // The kind is looked up again: the device number can have belonged to another file system before.
            Some(Self::Local | Self::Overlay | Self::Generated) if by_user => None,
            Some(known) => Some(known),
            None => has_disk.then_some(Self::Local),
        }
    }

    /// Remembers the kind of the file system of a file. A file system that a user can have mounted stays [`Self::Served`], even
    /// for processes of unknown users.
    pub(super) fn remember(self, facts: &Facts) {
        self.remember_key(key(facts));
    }

    fn remember_key(self, key: [u64; 2]) {
        with_known(|known| {
            if known.len() >= MOST {
                known.retain(|_, kind| *kind == Self::Served);
            }
            if known.len() < MOST {
                let kind = known.entry(key).or_insert(self);
                *kind = if *kind == Self::Served { Self::Served } else { self };
            }
        });
    }
}

const fn key(facts: &Facts) -> [u64; 2] {
    [facts.device, facts.mount]
}

fn with_known<T>(work: impl FnOnce(&mut HashMap<[u64; 2], Kind>) -> T) -> T {
    work(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_file_systems_are_served() {
        const FUSE: i64 = 0x6573_5546;
        let kind = |file_system, by_user| Kind::of_type(file_system, || unreachable!("it is no 9p"), by_user);
        for by_user in [false, true] {
            assert_eq!(kind(FUSE, by_user), Kind::Served);
            assert_eq!(kind(0x1234_5678, by_user), Kind::Served);
            assert_eq!(kind(0xef53, by_user), Kind::Local);
            assert_eq!(kind(0x9fa0, by_user), Kind::Generated);
        }
        assert_eq!([false, true].map(|by_user| kind(OVERLAY, by_user)), [Kind::Overlay, Kind::Served]);
    }

    #[test]
    fn another_machine_can_serve_9p() {
        let kind = |is_of_host| Kind::of_type(PLAN_9, || is_of_host, false);
        assert_eq!([true, false].map(kind), [Kind::Local, Kind::Served]);
    }

    #[test]
    fn served_file_system_stays_served() {
        let [one, other] = [[u64::MAX, 1], [u64::MAX, 2]];
        for kind in [Kind::Local, Kind::Served, Kind::Local] {
            kind.remember_key(one);
        }
        Kind::Local.remember_key(other);
        let known = |key| with_known(|known| known.get(&key).copied());
        assert_eq!([one, other].map(known), [Some(Kind::Served), Some(Kind::Local)]);
    }
}
