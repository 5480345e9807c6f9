//! Properties that select processes: name, user, executable and cgroups.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use memtrace_model::{Pid, Traits};

use super::cgroup_hierarchies::Hierarchies;
use super::kernel_files;
use super::kernel_text::{parent, real_user_in};
use super::process::{is_kernel_thread, proc_path};
use crate::target_files::{facts_at, open_target_file};

/// Lists all processes with an executable. Kernel threads have none. The list includes processes that memtrace may not read.
///
/// # Errors
///
/// Errors of reading `/proc`.
pub fn all_processes() -> io::Result<Vec<Pid>> {
    let mut pids = pids()?;
    pids.retain(|&pid| has_executable(pid));
    pids.sort_unstable();
    Ok(pids)
}

/// Lists the kernel threads.
///
/// # Errors
///
/// Errors of reading `/proc`.
pub fn kernel_threads() -> io::Result<Vec<Pid>> {
    let mut pids = pids()?;
    pids.retain(|&pid| is_kernel_thread(pid));
    Ok(pids)
}

/// Lists the running descendants of `roots`. A process with an exited parent belongs to another family (`find_new_reaper`,
/// kernel/exit.c). memtrace and its own descendants are left out: memtrace can be a descendant of a shell that it traces.
///
/// # Errors
///
/// Errors of reading `/proc`.
pub fn descendants(roots: &[Pid]) -> io::Result<Vec<Pid>> {
    let own = Pid(std::process::id());
    let mut children: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for pid in pids()? {
        if let Some(parent) = parent(pid)
            && pid != own
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut queue) = (Vec::new(), roots.to_vec());
    while let Some(pid) = queue.pop() {
        let of_pid = children.remove(&pid).unwrap_or_default();
        found.extend(of_pid.iter().filter(|child| !roots.contains(child)));
        queue.extend(of_pid);
    }
    found.sort_unstable();
    Ok(found)
}

/// Lists the processes in `/proc`.
pub(super) fn pids() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid));
    }
    Ok(pids)
}

fn has_executable(pid: Pid) -> bool {
    match kernel_files::read_link(proc_path(pid, "exe")) {
        Ok(_) => true,
        // Kernel threads hold no locks for long.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => true,
        // A kernel thread can give this error too: the permission is checked first (`proc_pid_readlink`, fs/proc/base.c).
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied && !is_kernel_thread(pid),
    }
}

/// Returns the current traits of a process, with its cgroups if `hierarchies` are given; `None` if the process has
/// exited. The executable is `None` if memtrace may not read it, or cannot read it in time.
#[must_use]
pub fn traits(pid: Pid, hierarchies: Option<&Hierarchies>) -> Option<Traits> {
    let comm = kernel_files::read(proc_path(pid, "comm")).ok()?;
    let status = kernel_files::read(proc_path(pid, "status")).ok()?;
    let cgroups = hierarchies.map(|hierarchies| hierarchies.of_process(pid)).unwrap_or_default();
    // Read the executable last: a process without it is exiting, and the other traits may be wrong.
    let exe = match facts_at(&proc_path(pid, "exe")) {
        Ok(exe) => Some((exe.device, exe.inode)),
        Err(error) if [io::ErrorKind::PermissionDenied, io::ErrorKind::TimedOut].contains(&error.kind()) => None,
        Err(_) if is_kernel_thread(pid) => None,
        Err(_) => return None,
    };
    Some(Traits {
        comm: Some(String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned()),
        user: real_user_in(&String::from_utf8_lossy(&status)),
        exe,
        cgroups,
    })
}

/// Returns the id of a user. `user` is a name or a number. Returns `None` if there is no such user.
///
/// # Errors
///
/// Errors of reading `/etc/passwd`.
pub(crate) fn user_id(user: &str) -> io::Result<Option<u32>> {
    if let Ok(id) = user.parse() {
        return Ok(Some(id));
    }
    Ok(find_uid(&io::read_to_string(open_target_file(Path::new("/etc/passwd"))?)?, user))
}

/// Finds the line `NAME:PASSWORD:UID:...` of a user (passwd(5)), and returns its uid.
fn find_uid(passwd: &str, user: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn own_process_is_no_descendant() {
        let own = Pid(std::process::id());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let found = descendants(&[parent(own).unwrap()]).unwrap();
        assert!(!found.contains(&own) && !found.contains(&Pid(child.id())), "{found:?}");
        assert!(descendants(&[own]).unwrap().contains(&Pid(child.id())));
        child.kill().unwrap();
        child.wait().unwrap();
    }

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
        let pid = Pid(std::process::id());
        let own = traits(pid, None).unwrap();
        let program = fs::metadata(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.exe, Some((program.dev(), program.ino())));
        assert_eq!(own.user, Some(fs::metadata("/proc/self").unwrap().uid()));
        assert_eq!(own.comm.as_deref(), fs::read_to_string("/proc/self/comm").unwrap().strip_suffix('\n'));
        assert_eq!(own.cgroups, []);
        let hierarchies = Hierarchies::read().unwrap();
        assert_eq!(traits(pid, Some(&hierarchies)).unwrap().cgroups, hierarchies.of_process(pid));
        assert_eq!(traits(Pid(u32::MAX), None), None);
        assert_eq!(traits(Pid(2), None).unwrap().comm.as_deref(), Some("kthreadd"));
    }
}
