//! Credentials of processes.

use std::io;

use memtrace_model::Pid;

use super::kernel_text::{effective_capabilities_in, has_memory_in, parent_in, real_user_in};
use super::process::proc_path;
use super::select::pids;
use crate::privileges::CapabilitySet;
use crate::procfs::kernel_files;

/// Credentials of a process, from `/proc/PID/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) pid: Pid,
    /// `None` if the process has no parent in the pid namespace of memtrace.
    pub(crate) parent: Option<Pid>,
    /// Real user id.
    pub(crate) user: u32,
    /// Effective capabilities in the user namespace of the process.
    pub(crate) capabilities: CapabilitySet,
    /// False for kernel threads, and for processes that end.
    pub(crate) has_memory: bool,
}

/// Lists the credentials of all processes. Skips processes that exit during the listing.
///
/// # Errors
///
/// Errors of reading `/proc`.
pub(crate) fn all_credentials() -> io::Result<Vec<Credentials>> {
    Ok(pids()?.into_iter().filter_map(credentials).collect())
}

/// Reads the credentials of a process; returns `None` if it has exited.
pub(crate) fn credentials(pid: Pid) -> Option<Credentials> {
    let status = kernel_files::read(proc_path(pid, "status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let user = real_user_in(&status)?;
    let capabilities = CapabilitySet::from_bits_retain(effective_capabilities_in(&status)?);
    Some(Credentials { pid, parent: parent_in(&status), user, capabilities, has_memory: has_memory_in(&status) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::effective_capabilities;

    #[test]
    fn own_credentials_are_listed() {
        let own = Pid(std::process::id());
        let all = all_credentials().unwrap();
        let found = all.iter().find(|credentials| credentials.pid == own).unwrap();
        // SAFETY: the call has no conditions and cannot fail (getuid(2)).
        let user = unsafe { libc::getuid() };
        assert_eq!((found.user, found.parent), (user, Some(Pid(std::os::unix::process::parent_id()))));
        assert_eq!((found.capabilities, found.has_memory), (effective_capabilities(), true));
        assert!(!credentials(Pid(2)).unwrap().has_memory, "kthreadd");
    }
}
