//! Whose a process is: its user, its control group, and its threads.

use std::fs;
use std::sync::Arc;

use super::cgroup;
use super::process::proc_path;
use super::users::Users;
use crate::model::{Cgroup, Pid, Tid, User};

/// Looks up whose processes are. Processes in one control group share what is said of it.
#[derive(Debug)]
pub(crate) struct MetadataReader {
    users: Users,
    last: Option<(String, Arc<Cgroup>)>,
}

/// Whose a process is, as far as that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessMetadata {
    /// The user that it runs as: the effective one.
    pub user: Option<User>,
    /// The control group that it is in.
    pub cgroup: Option<Arc<Cgroup>>,
    /// How many threads it has.
    pub threads: Option<u32>,
}

impl Default for MetadataReader {
    fn default() -> Self {
        Self::new()
    }
}

impl MetadataReader {
    /// Reads the host's users.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self { users: Users::read(), last: None }
    }

    /// Whose `pid` is. What cannot be read, as when the process has ended, is not known.
    pub(crate) fn of(&mut self, pid: Pid) -> ProcessMetadata {
        let status = fs::read(proc_path(pid, "status")).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        // real, effective, saved and file system uid
        let uid = field(&status, "Uid:").and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        ProcessMetadata {
            user: uid.map(|uid| self.users.user(pid, uid)),
            cgroup: self.cgroup(pid),
            threads: field(&status, "Threads:").and_then(|count| count.trim().parse().ok()),
        }
    }

    fn cgroup(&mut self, pid: Pid) -> Option<Arc<Cgroup>> {
        let text = fs::read(proc_path(pid, "cgroup")).ok()?;
        let text = String::from_utf8_lossy(&text);
        if let Some((known, cgroup)) = &self.last
            && *known == text
        {
            return Some(Arc::clone(cgroup));
        }
        let cgroup = Arc::new(cgroup::parse(&text)?);
        self.last = Some((text.into_owned(), Arc::clone(&cgroup)));
        Some(cgroup)
    }
}

/// The names that the threads of `pid` go by; none where it has ended.
#[must_use]
pub(crate) fn thread_names(pid: Pid) -> Vec<(Tid, String)> {
    let Ok(folders) = fs::read_dir(proc_path(pid, "task")) else { return Vec::new() };
    let name = |folder: fs::DirEntry| {
        let tid = folder.file_name().to_str()?.parse().ok()?;
        let name = fs::read(folder.path().join("comm")).ok()?;
        Some((Tid(tid), String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()))
    };
    folders.filter_map(|folder| name(folder.ok()?)).collect()
}

/// What stands behind `name` in `/proc/PID/status`. The process' own name comes first there, with its line ends escaped
/// (`proc_task_name`, fs/proc/array.c), so that it cannot pass for another line.
pub(crate) fn field<'text>(status: &'text str, name: &str) -> Option<&'text str> {
    status.lines().find_map(|line| line.strip_prefix(name))
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
    fn ones_own_belonging_is_what_the_kernel_says_elsewhere() {
        let mut belongings = MetadataReader::new();
        let own = belongings.of(own_pid());
        // SAFETY: the call only reads the process' credentials.
        let uid = unsafe { libc::geteuid() };
        assert_eq!(own.user.map(|user| user.uid), Some(uid));
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let cgroup = own.cgroup.unwrap();
        assert!(groups.lines().any(|line| line.splitn(3, ':').nth(2) == Some(&cgroup.path)), "{cgroup:?}: {groups}");
        assert!(Arc::ptr_eq(&cgroup, &belongings.of(own_pid()).cgroup.unwrap()), "read anew");
        assert!(own.threads.unwrap() >= 1);
    }

    #[test]
    fn nothing_is_known_of_nobody() {
        assert_eq!(MetadataReader::new().of(Pid(u32::MAX)), ProcessMetadata::default());
        assert_eq!(thread_names(Pid(u32::MAX)), []);
    }

    #[test]
    fn threads_are_known_by_the_names_that_they_were_given() {
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
