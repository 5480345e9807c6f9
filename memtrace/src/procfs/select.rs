//! What users call processes by, as the kernel knows it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::process::proc_path;
use crate::model::Pid;

/// The file system of control groups, version 2 (`CGROUP2_SUPER_MAGIC`, include/uapi/linux/magic.h).
const CGROUP2: libc::c_long = 0x6367_7270;

/// Every process that runs a program: not the kernel's own threads.
///
/// # Errors
///
/// Where `/proc` cannot be read.
pub(crate) fn all_processes() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && fs::read_link(entry.path().join("exe")).is_ok()
        {
            pids.push(Pid(pid));
        }
    }
    pids.sort_unstable();
    Ok(pids)
}

/// What a process is, as far as it can be chosen by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Its name.
    pub comm: String,
    /// Its real user id.
    pub user: u32,
    /// Its program's file: device and inode, as `stat` has them.
    pub exe: (u64, u64),
}

/// What the process is now; `None` where it has ended.
#[must_use]
pub(crate) fn traits(pid: Pid) -> Option<Traits> {
    let comm = fs::read_to_string(proc_path(pid, "comm")).ok()?;
    let status = fs::read_to_string(proc_path(pid, "status")).ok()?;
    let exe = fs::metadata(proc_path(pid, "exe")).ok()?;
    Some(Traits {
        comm: comm.trim_end_matches('\n').to_owned(),
        user: status.lines().find_map(real_user)?,
        exe: (exe.dev(), exe.ino()),
    })
}

/// Whether the process is in the control group (version 2) with this id, or below it; `None` where it has ended.
#[must_use]
pub(crate) fn is_in_cgroup(pid: Pid, id: u64) -> Option<bool> {
    let groups = fs::read_to_string(proc_path(pid, "cgroup")).ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = mount_point(&fs::read("/proc/self/mountinfo").ok()?)?;
    let own = root.join(own);
    let mut groups = own.ancestors().take_while(|group| group.starts_with(&root));
    Some(groups.any(|group| fs::metadata(group).is_ok_and(|group| group.ino() == id)))
}

/// `Uid: REAL EFFECTIVE SAVED FILES` (proc_pid_status(5)).
fn real_user(line: &str) -> Option<u32> {
    line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok()
}

/// The id of a user, given by name or by number; `None` where there is no such user.
///
/// # Errors
///
/// Where `/etc/passwd` cannot be read.
pub(crate) fn user_id(user: &str) -> io::Result<Option<u32>> {
    if let Ok(id) = user.parse() {
        return Ok(Some(id));
    }
    Ok(id_in(&fs::read_to_string("/etc/passwd")?, user))
}

/// `NAME:PASSWORD:UID:...` (passwd(5)).
fn id_in(passwd: &str, user: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// The id of a control group (version 2): of its directory, or of its path below the root of all, as `system.slice`.
///
/// # Errors
///
/// Where there is no such group.
pub(crate) fn cgroup_id(path: &Path) -> io::Result<u64> {
    let is_directory = path.is_absolute() && path.parent().is_some() && is_cgroup(path);
    let group = if is_directory { path.to_owned() } else { below_root(path)? };
    // The kernel's id of a group is its directory's inode (`cgroup_id`, include/linux/cgroup.h).
    Ok(fs::metadata(group)?.ino())
}

fn below_root(path: &Path) -> io::Result<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let root = mount_point(&mounts).ok_or_else(|| io::Error::other("control groups (version 2) are not mounted"))?;
    let group = root.join(path.strip_prefix("/").unwrap_or(path));
    if is_cgroup(&group) { Ok(group) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
}

fn is_cgroup(path: &Path) -> bool {
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: zeros are a valid statfs.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends in a zero, and the call fills one statfs.
    unsafe { libc::statfs(name.as_ptr(), &raw mut found) == 0 && found.f_type == CGROUP2 }
}

/// Where control groups (version 2) are mounted: `ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS... - TYPE ...`
/// (proc_pid_mountinfo(5)).
fn mount_point(mounts: &[u8]) -> Option<PathBuf> {
    mounts.split(|&byte| byte == b'\n').find_map(|line| {
        let words: Vec<_> = line.split(|&byte| byte == b' ').collect();
        let behind = words.iter().position(|word| *word == b"-")?;
        let is_it = words.get(behind + 1) == Some(&&b"cgroup2"[..]);
        is_it.then(|| words.get(4).map(|point| PathBuf::from(OsString::from_vec(point.to_vec()))))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_name_and_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/var/www:/usr/sbin/nologin\nodd\n";
        assert_eq!(id_in(passwd, "www-data"), Some(33));
        assert_eq!(id_in(passwd, "root"), Some(0));
        assert_eq!(id_in(passwd, "odd"), None);
        assert_eq!(id_in(passwd, "x"), None);
        assert_eq!(user_id("1000").unwrap(), Some(1000));
    }

    #[test]
    fn the_groups_mount_point_is_found_among_others() {
        let mounts = b"25 1 0:22 / /sys rw - sysfs sysfs rw\n\
            30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 master:1 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point(b"25 1 0:22 / /sys rw - sysfs sysfs rw\n"), None);
    }

    #[test]
    fn this_process_is_among_all() {
        assert!(all_processes().unwrap().contains(&Pid(std::process::id())));
    }

    #[test]
    fn this_process_is_what_it_is() {
        let own = traits(Pid(std::process::id())).unwrap();
        let program = fs::metadata(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.exe, (program.dev(), program.ino()));
        assert_eq!(own.user, fs::metadata("/proc/self").unwrap().uid());
        assert_eq!(traits(Pid(u32::MAX)), None);
    }

    #[test]
    fn every_process_is_below_the_root_of_all_groups() {
        let own = Pid(std::process::id());
        let root = cgroup_id(Path::new("/")).unwrap();
        assert_eq!(is_in_cgroup(own, root), Some(true));
        assert_eq!(is_in_cgroup(own, u64::MAX), Some(false));
        assert_eq!(is_in_cgroup(Pid(u32::MAX), root), None);
    }

    #[test]
    fn what_is_no_group_has_no_id() {
        assert!(cgroup_id(Path::new("/tmp")).is_err());
        assert!(cgroup_id(Path::new("no-such.slice")).is_err());
    }
}
