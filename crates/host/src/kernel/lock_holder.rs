//! A process that holds the lock of its memory map.

use std::fmt;

use memtrace_model::{Comm, Pid};

use crate::procfs;

/// Process that holds the lock of its memory map, and waits for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Pid of the process.
    pub pid: Pid,
    /// Name of the process; `None` if it has exited.
    pub comm: Option<Comm>,
    /// User id of the user who is responsible for the process; `None` if the process has exited.
    pub user: Option<u32>,
}

impl LockHolder {
    /// Looks up the name and the user of a process.
    pub(super) fn of(pid: Pid) -> Self {
        Self { pid, comm: procfs::comm(pid).map(Comm::from), user: procfs::responsible_user(pid) }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "process {}", self.pid)?;
        if let Some(comm) = &self.comm {
            write!(out, " ({comm})")?;
        }
        match self.user {
            Some(user) => write!(out, " of user {user}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_shown_by_pid_name_and_user() {
        let holder = LockHolder { pid: Pid(7), comm: Some(Comm::from("a\x1b")), user: Some(1000) };
        assert!(holder.to_string().starts_with("process 7 (a"), "{holder}");
        assert!(holder.to_string().ends_with(") of user 1000"), "{holder}");
        assert!(!holder.to_string().contains('\x1b'), "{holder}");
        let exited = LockHolder { pid: Pid(7), comm: None, user: None };
        assert_eq!(exited.to_string(), "process 7");
    }
}
