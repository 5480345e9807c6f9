//! Reader of `/proc/PID/mountinfo`: finds the tmpfs devices, to classify mappings.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt as _;

use memtrace_model::{MappingKind, MappingTraits, Pid};

use super::smaps::Vma;
use crate::procfs::kernel_files;
use crate::procfs::maps::MapsEntry;
use crate::procfs::process::proc_path;

/// Devices of the tmpfs mounts in a process's mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tmpfs(HashSet<u64>);

impl Tmpfs {
    /// Reads the mounts of the process `pid`. If they cannot be read, no device is a tmpfs.
    pub fn of(pid: Pid) -> Self {
        Self::parse(&kernel_files::read(proc_path(pid, "mountinfo")).unwrap_or_default())
    }

    /// Parses `ID PARENT MAJOR:MINOR ... - TYPE ...` (proc_pid_mountinfo(5)).
    fn parse(mounts: &[u8]) -> Self {
        let device = |line: &[u8]| {
            let text = std::str::from_utf8(line).ok()?;
            let (mount, kind) = text.split_once(" - ")?;
            (kind.split(' ').next() == Some("tmpfs")).then_some(())?;
            let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
            Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
        };
        Self(mounts.split(|&byte| byte == b'\n').filter_map(device).collect())
    }

    /// Returns the kind of a mapping that was read from `maps`. Only the name shows device memory and hugetlb pages.
    pub fn kind_of(&self, entry: &MapsEntry) -> MappingKind {
        MappingKind::of(&self.traits(entry))
    }

    /// Returns the kind of a VMA that was read from `smaps`.
    pub fn kind(&self, vma: &Vma) -> MappingKind {
        let traits = self.traits(&vma.entry);
        MappingKind::of(&MappingTraits { hugetlb: vma.hugetlb, device_memory: vma.device_memory, ..traits })
    }

    fn traits<'entry>(&self, entry: &'entry MapsEntry) -> MappingTraits<'entry> {
        MappingTraits {
            name: entry.path.as_os_str().as_bytes(),
            shared: entry.shared,
            on_tmpfs: entry.file.is_some_and(|file| self.0.contains(&file.device)),
            inode: entry.file.map_or(0, |file| file.inode),
            ..MappingTraits::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tmpfs_devices_are_found_among_the_mounts() {
        let mounts = b"25 1 0:22 / /sys rw - sysfs sysfs rw\n\
            26 1 0:23 / /dev/shm rw,nosuid shared:4 master:1 - tmpfs tmpfs rw\n\
            27 1 253:1 / / rw - ext4 /dev/tmpfs rw\n\xff\n- tmpfs\n";
        assert_eq!(Tmpfs::parse(mounts), Tmpfs(HashSet::from([libc::makedev(0, 23)])));
    }
}
