//! Properties that select processes: name, user, executable and cgroup.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::process::{is_kernel_thread, proc_path};
use crate::model::Pid;

/// File system type of cgroup version 2 (`CGROUP2_SUPER_MAGIC`, include/uapi/linux/magic.h).
const CGROUP2: libc::c_long = 0x6367_7270;

/// Lists all processes with an executable, that is, without kernel threads. They include those that memtrace may not
/// read.
///
/// # Errors
///
/// Errors of reading `/proc`.
pub(crate) fn all_processes() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && has_executable(Pid(pid))
        {
            pids.push(Pid(pid));
        }
    }
    pids.sort_unstable();
    Ok(pids)
}

fn has_executable(pid: Pid) -> bool {
    match fs::read_link(proc_path(pid, "exe")) {
        Ok(_) => true,
        // The kernel checks the permission before the existence (`proc_pid_readlink`, fs/proc/base.c).
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied && !is_kernel_thread(pid),
    }
}

/// Properties of a process that filters compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub comm: String,
    /// Real user id.
    pub user: u32,
    /// Device and inode of the executable, as in `stat`.
    pub exe: (u64, u64),
}

/// Returns the current properties of a process; `None` if it has exited.
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

/// Returns true if the process is in the cgroup (version 2) with this id or a descendant; `None` if it has exited.
#[must_use]
pub(crate) fn is_in_cgroup(pid: Pid, id: u64) -> Option<bool> {
    let groups = fs::read_to_string(proc_path(pid, "cgroup")).ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = mount_point(&fs::read("/proc/self/mountinfo").ok()?)?;
    let own = root.join(own);
    let mut groups = own.ancestors().take_while(|group| group.starts_with(&root));
    Some(groups.any(|group| fs::metadata(group).is_ok_and(|group| group.ino() == id)))
}

/// Parses `Uid: REAL EFFECTIVE SAVED FILES` (proc_pid_status(5)).
fn real_user(line: &str) -> Option<u32> {
    line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok()
}

/// Returns the id of a user given by name or number; `None` if there is no such user.
///
/// # Errors
///
/// Errors of reading `/etc/passwd`.
pub(crate) fn user_id(user: &str) -> io::Result<Option<u32>> {
    if let Ok(id) = user.parse() {
        return Ok(Some(id));
    }
    Ok(find_uid(&fs::read_to_string("/etc/passwd")?, user))
}

/// Finds a line `NAME:PASSWORD:UID:...` (passwd(5)).
fn find_uid(passwd: &str, user: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Returns the id of a cgroup (version 2), given by its directory or by its path in the hierarchy, such as
/// `system.slice`.
///
/// # Errors
///
/// The cgroup does not exist, or version 2 is not mounted.
pub(crate) fn cgroup_id(path: &Path) -> io::Result<u64> {
    let is_directory = path.is_absolute() && path.parent().is_some() && is_cgroup(path);
    let group = if is_directory { path.to_owned() } else { cgroup_directory(path)? };
    // The kernel's id of a cgroup is the inode of its directory (`cgroup_id`, include/linux/cgroup.h).
    Ok(fs::metadata(group)?.ino())
}

fn cgroup_directory(path: &Path) -> io::Result<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let root = mount_point(&mounts).ok_or_else(|| io::Error::other("cgroup version 2 is not mounted"))?;
    let group = root.join(path.strip_prefix("/").unwrap_or(path));
    if is_cgroup(&group) { Ok(group) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
}

fn is_cgroup(path: &Path) -> bool {
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: zeros are a valid statfs.
    let mut statfs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name is null-terminated, and the call fills one statfs.
    unsafe { libc::statfs(name.as_ptr(), &raw mut statfs) == 0 && statfs.f_type == CGROUP2 }
}

/// Returns the mount point of cgroup version 2: `ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS... - TYPE ...`
/// (proc_pid_mountinfo(5)).
fn mount_point(mounts: &[u8]) -> Option<PathBuf> {
    mounts.split(|&byte| byte == b'\n').find_map(|line| {
        let words: Vec<_> = line.split(|&byte| byte == b' ').collect();
        let separator = words.iter().position(|word| *word == b"-")?;
        let is_cgroup2 = words.get(separator + 1) == Some(&&b"cgroup2"[..]);
        is_cgroup2.then(|| words.get(4).map(|point| PathBuf::from(OsString::from_vec(point.to_vec()))))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/var/www:/usr/sbin/nologin\nodd\n";
        assert_eq!(find_uid(passwd, "www-data"), Some(33));
        assert_eq!(find_uid(passwd, "root"), Some(0));
        assert_eq!(find_uid(passwd, "odd"), None);
        assert_eq!(find_uid(passwd, "x"), None);
        assert_eq!(user_id("1000").unwrap(), Some(1000));
    }

    #[test]
    fn the_cgroup2_mount_point_is_found_among_others() {
        let mounts = b"25 1 0:22 / /sys rw - sysfs sysfs rw\n\
            30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 master:1 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point(b"25 1 0:22 / /sys rw - sysfs sysfs rw\n"), None);
    }

    #[test]
    fn this_process_is_among_all_processes() {
        assert!(all_processes().unwrap().contains(&Pid(std::process::id())));
    }

    #[test]
    fn kernel_threads_have_no_executable() {
        assert!(!all_processes().unwrap().contains(&Pid(2)), "kthreadd");
        assert!(is_kernel_thread(Pid(2)) && !is_kernel_thread(Pid(std::process::id())));
    }

    #[test]
    fn traits_of_this_process_match_its_files() {
        let own = traits(Pid(std::process::id())).unwrap();
        let program = fs::metadata(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.exe, (program.dev(), program.ino()));
        assert_eq!(own.user, fs::metadata("/proc/self").unwrap().uid());
        assert_eq!(traits(Pid(u32::MAX)), None);
    }

    #[test]
    fn every_process_is_in_the_root_cgroup() {
        let own = Pid(std::process::id());
        let root = cgroup_id(Path::new("/")).unwrap();
        assert_eq!(is_in_cgroup(own, root), Some(true));
        assert_eq!(is_in_cgroup(own, u64::MAX), Some(false));
        assert_eq!(is_in_cgroup(Pid(u32::MAX), root), None);
    }

    #[test]
    fn other_directories_have_no_cgroup_id() {
        assert!(cgroup_id(Path::new("/tmp")).is_err());
        assert!(cgroup_id(Path::new("no-such.slice")).is_err());
    }
}
