//! Reader of `/proc/PID/mountinfo`: finds the tmpfs devices, to classify mappings, the FUSE file systems that root serves, and the
//! 9p file systems of the host of a virtual machine.

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

    fn parse(mounts: &[u8]) -> Self {
        let device = |mount: Mount<'_>| (mount.kind == "tmpfs").then(|| libc::makedev(mount.major, mount.minor));
        Self(Mount::all(mounts).filter_map(device).collect())
    }

    /// Returns the kind of a mapping that was read from `maps`. In `maps`, only the name of a mapping shows device
    /// memory and hugetlb pages.
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

/// Line of `mountinfo`.
struct Mount<'text> {
    major: u32,
    minor: u32,
    kind: &'text str,
    /// Options of the file system, with commas between them.
    options: &'text str,
}

impl<'text> Mount<'text> {
    fn all(mounts: &'text [u8]) -> impl Iterator<Item = Self> {
        mounts.split(|&byte| byte == b'\n').filter_map(Self::parse)
    }

    /// Parses `ID PARENT MAJOR:MINOR ... - TYPE SOURCE OPTIONS` (proc_pid_mountinfo(5)).
    fn parse(line: &'text [u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let (mount, kind) = text.split_once(" - ")?;
        let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
        let mut words = kind.split(' ');
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            kind: words.next()?,
            options: words.nth(1).unwrap_or_default(),
        })
    }
}

/// Returns true if the FUSE file system with this device number is mounted for memtrace, and was mounted by root. Users mount
/// file systems in namespaces of their own, or by fusermount(1), which writes the user into the option `user_id`.
pub(crate) fn is_served_by_root(major: u32, minor: u32) -> bool {
    is_served_by_root_in(&kernel_files::read("/proc/self/mountinfo").unwrap_or_default(), major, minor)
}

fn is_served_by_root_in(mounts: &[u8], major: u32, minor: u32) -> bool {
    let of_root =
        |mount: &Mount<'_>| mount.kind == "virtiofs" || mount.options.split(',').any(|part| part == "user_id=0");
    let found = Mount::all(mounts).find(|mount| (mount.major, mount.minor) == (major, minor));
    found.is_some_and(|mount| of_root(&mount))
}

/// Transports of 9p to the host of a virtual machine (`p9_trans_module`, net/9p). The others lead to another machine (`tcp`,
/// `rdma`) or to a process (`unix`).
const TRANSPORTS_TO_HOST: [&str; 3] = ["trans=virtio", "trans=fd", "trans=xen"];

/// Returns true if the 9p file system with this device number is mounted for memtrace, and the host of a virtual machine answers
/// its requests.
pub(crate) fn is_9p_of_host(device: u64) -> bool {
    is_9p_of_host_in(&kernel_files::read("/proc/self/mountinfo").unwrap_or_default(), device)
}

fn is_9p_of_host_in(mounts: &[u8], device: u64) -> bool {
    let mut all = Mount::all(mounts).filter(|mount| libc::makedev(mount.major, mount.minor) == device);
    all.any(|mount| mount.kind == "9p" && mount.options.split(',').any(|part| TRANSPORTS_TO_HOST.contains(&part)))
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

    #[test]
    fn fuse_is_served_by_the_user_in_its_options() {
        let mounts = b"30 1 0:31 / /sshfs rw - fuse.sshfs host rw,user_id=1000,group_id=1000,allow_other\n\
                       31 1 0:32 / /mnt rw shared:7 - fuse.ntfs /dev/sdb1 rw,user_id=0,group_id=0\n\
                       32 1 0:33 / /vm rw - virtiofs share rw\n";
        let by_root = [31, 32, 33, 34].map(|minor| is_served_by_root_in(mounts, 0, minor));
        assert_eq!(by_root, [false, true, true, false]);
    }

    #[test]
    fn host_is_distinguished_from_a_network_by_the_transport() {
        let mounts = b"30 1 0:31 / /host rw - 9p share rw,access=client,msize=512000,trans=virtio\n\
                       31 1 0:32 / /wsl rw - 9p C: rw,aname=drvfs,trans=fd,rfd=8,wfd=8\n\
                       32 1 0:33 / /net rw - 9p 10.0.0.7 rw,trans=tcp,port=564\n\
                       33 1 0:34 / /fast rw - 9p server rw,trans=rdma\n\
                       34 1 0:35 / /old rw - 9p server rw\n\
                       35 1 0:36 / /named rw - ext4 /dev/trans=virtio rw,trans=virtio\n";
        let of_host = [31, 32, 33, 34, 35, 36, 37].map(|minor| is_9p_of_host_in(mounts, libc::makedev(0, minor)));
        assert_eq!(of_host, [true, true, false, false, false, false, false]);
    }
}
