//! User, cgroup and threads of a process.

use std::fs;
use std::sync::Arc;

use memtrace_model::{Cgroup, Pid, Tid, User};

use super::cgroup_path::CgroupPathReader;
use super::kernel_text::field;
use super::passwd::Users;
use super::process::proc_path;
use crate::procfs::kernel_files;

/// Reader of process metadata.
#[derive(Debug)]
pub struct MetadataReader {
    users: Users,
    cgroups: CgroupPathReader,
}

/// User, cgroup and number of threads of a process. A value that cannot be read is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMetadata {
    /// Effective user.
    pub user: Option<User>,
    pub cgroup: Option<Arc<Cgroup>>,
    pub threads: Option<u32>,
}

impl Default for MetadataReader {
    fn default() -> Self {
        Self::new()
    }
}

impl MetadataReader {
    /// Creates a reader with the host's users.
    #[must_use]
    pub fn new() -> Self {
        Self { users: Users::read(), cgroups: CgroupPathReader::default() }
    }

    /// Returns the user with this id, with its name on the host.
    pub fn user(&self, uid: u32) -> User {
        self.users.of_host(uid)
    }

    /// Reads the metadata of `pid`, as far as possible: the process may have exited.
    pub fn of(&mut self, pid: Pid) -> ProcessMetadata {
        let status = kernel_files::read(proc_path(pid, "status")).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        // The line has the real, effective, saved and file system uid.
        let uid = field(&status, "Uid:").and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        ProcessMetadata {
            user: uid.map(|uid| self.users.user(pid, uid)),
            cgroup: self.cgroups.read(pid),
            threads: field(&status, "Threads:").and_then(|count| count.trim().parse().ok()),
        }
    }
}

/// Returns the threads of the process `pid`; no thread if it has exited.
#[must_use]
pub fn threads(pid: Pid) -> Vec<Tid> {
    let Ok(entries) = fs::read_dir(proc_path(pid, "task")) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Tid)).collect()
}

/// Returns the name of a thread of `pid`; `None` if the thread has exited.
#[must_use]
pub fn thread_name(pid: Pid, tid: Tid) -> Option<String> {
    let name = kernel_files::read(proc_path(pid, &format!("task/{}/comm", tid.0))).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

/// Returns the threads of the process `pid` with their names; no thread if it has exited.
#[must_use]
pub fn thread_names(pid: Pid) -> Vec<(Tid, String)> {
    threads(pid).into_iter().filter_map(|tid| Some((tid, thread_name(pid, tid)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn own_pid() -> Pid {
        Pid(std::process::id())
    }

    #[test]
    fn metadata_of_this_process_match_other_sources() {
        let mut reader = MetadataReader::new();
        let own = reader.of(own_pid());
        // SAFETY: the call only reads the process' credentials.
        let uid = unsafe { libc::geteuid() };
        assert_eq!(own.user.map(|user| user.uid), Some(uid));
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let cgroup = own.cgroup.unwrap();
        assert!(groups.lines().any(|line| line.splitn(3, ':').nth(2) == Some(&cgroup.path)), "{cgroup:?}: {groups}");
        assert!(Arc::ptr_eq(&cgroup, &reader.of(own_pid()).cgroup.unwrap()), "the cgroup is shared");
        assert!(own.threads.unwrap() >= 1);
    }

    #[test]
    fn a_missing_process_has_no_metadata() {
        assert_eq!(MetadataReader::new().of(Pid(u32::MAX)), ProcessMetadata::default());
        assert_eq!(thread_names(Pid(u32::MAX)), []);
    }

    #[test]
    fn thread_names_are_read() {
        let (ready, is_ready) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("ledger (7)".to_owned()).spawn(move || {
            // SAFETY: gettid(2) takes nothing and cannot fail.
            ready.send(u32::try_from(unsafe { libc::gettid() }).unwrap()).unwrap();
            wait.recv().unwrap_err();
        });
        let tid = Tid(is_ready.recv().unwrap());
        let names = thread_names(own_pid());
        drop(done);
        thread.unwrap().join().unwrap();
        assert!(names.contains(&(tid, "ledger (7)".to_owned())), "{names:?}");
    }
}
