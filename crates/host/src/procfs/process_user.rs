//! The user of a process, and the user who is responsible for a process in a user namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::LazyLock;

use memtrace_model::Pid;

use super::kernel_files;
use super::kernel_text::real_user;
use super::process::proc_path;

/// Request for a descriptor of the parent of a user namespace (ioctl_ns(2), include/uapi/linux/nsfs.h).
const NS_GET_PARENT: libc::Ioctl = 0xb702;
/// Request for the user who has created a user namespace.
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// Maximum number of nested user namespaces (`create_user_ns`, kernel/user_namespace.c).
const MOST_LEVELS: usize = 33;

/// User namespace of this process; `None` if it cannot be read.
static OWN: LazyLock<Option<u64>> = LazyLock::new(|| inode(&kernel_files::open("/proc/self/ns/user").ok()?));

/// Returns true if a process is in the user namespace of memtrace. In another one, a process without privileges can mount
/// file systems. Returns false if the process has exited.
pub(crate) fn is_in_own_user_namespace(pid: Pid) -> bool {
    let namespace = kernel_files::open(proc_path(pid, "ns/user")).ok().as_ref().and_then(inode);
    OWN.is_some() && namespace == *OWN
}

/// Returns the user who is responsible for a process: its real user, or the creator of its outermost user namespace
/// below the namespace of memtrace. In a namespace of their own, users can have many user ids (subuid(5)). Returns
/// `None` if the process has exited.
#[must_use]
pub fn responsible_user(pid: Pid) -> Option<u32> {
    let user = real_user(pid)?;
    Some(kernel_files::open(proc_path(pid, "ns/user")).ok().and_then(creator).unwrap_or(user))
}

/// Returns the creator of the outermost namespace below the namespace of memtrace; `None` if the process is in the
/// namespace of memtrace.
fn creator(mut namespace: File) -> Option<u32> {
    let own = (*OWN)?;
    for _ in 0..MOST_LEVELS {
        if inode(&namespace)? == own {
            return None;
        }
        match parent(&namespace) {
            Ok(parent) if inode(&parent)? != own => namespace = parent,
            // The parent is the namespace of memtrace, or memtrace cannot see it.
            _ => return owner(&namespace),
        }
    }
    None
}

fn inode(file: &File) -> Option<u64> {
    Some(file.metadata().ok()?.ino())
}

fn parent(namespace: &File) -> io::Result<File> {
    // SAFETY: the request takes no argument.
    let descriptor = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

fn owner(namespace: &File) -> Option<u32> {
    let mut user: libc::uid_t = 0;
    // SAFETY: the request writes one user id.
    let status = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut user) };
    (status == 0).then_some(user)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    const NOBODY: u32 = 65534;

    #[test]
    fn process_in_the_own_namespace_has_its_real_user() {
        let own = Pid(std::process::id());
        assert_eq!(responsible_user(own), real_user(own));
        assert_eq!(responsible_user(Pid(u32::MAX)), None);
    }

    #[test]
    fn creator_answers_for_processes_in_a_namespace() {
        // SAFETY: the call has no conditions.
        if unsafe { libc::geteuid() } != 0 {
            // A user without privileges is the creator of the namespace.
            return;
        }
        // A namespace in a namespace: the outer one counts.
        let script = "exec unshare --user --map-root-user sh -c 'echo ready; read line'";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script]).uid(NOBODY).gid(NOBODY);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        assert_eq!(responsible_user(Pid(child.id())), Some(NOBODY));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
