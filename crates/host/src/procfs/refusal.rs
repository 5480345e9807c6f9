//! Reasons why the kernel does not let memtrace read a process (`__ptrace_may_access`, kernel/ptrace.c) or its files.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::privileges::{CapabilitySet, effective_capabilities};

/// Link of `/proc/PID/ns/user` in the root user namespace (`PROC_USER_INIT_INO`, include/linux/proc_ns.h).
const ROOT_USER_NAMESPACE: &str = "user:[4026531837]";

/// Reason why memtrace may not read a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRefusal {
    /// memtrace has no CAP_SYS_PTRACE.
    Capability,
    /// memtrace has the capability, but only in its own user namespace. The process does not belong to this namespace.
    UserNamespace,
    /// memtrace has the capability, so a security module must have refused: the kernel asks these modules last.
    SecurityModule,
}

impl ReadRefusal {
    /// Returns the reason why this thread was refused.
    pub fn find() -> Self {
        Self::judge(effective_capabilities(), in_root_user_namespace())
    }

    fn judge(capabilities: CapabilitySet, in_root_user_namespace: bool) -> Self {
        if !capabilities.contains(CapabilitySet::SYS_PTRACE) {
            Self::Capability
        } else if !in_root_user_namespace {
            Self::UserNamespace
        } else {
            Self::SecurityModule
        }
    }

    /// Returns advice for the user; `None` if memtrace lacks the capability.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Capability => None,
            Self::UserNamespace => Some("run memtrace as root of the host, outside of the container"),
            Self::SecurityModule => {
                Some("run memtrace outside of the sandbox; /sys/kernel/security/lsm lists the security modules")
            }
        }
    }
}

/// Returns true if this thread is in the root user namespace, so that its capabilities apply to all processes.
pub fn in_root_user_namespace() -> bool {
    fs::read_link("/proc/thread-self/ns/user").is_ok_and(|link| link == Path::new(ROOT_USER_NAMESPACE))
}

impl fmt::Display for ReadRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Capability => "it needs CAP_SYS_PTRACE",
            Self::UserNamespace => {
                "memtrace has CAP_SYS_PTRACE only in its own user namespace, to which the process does not belong"
            }
            Self::SecurityModule => {
                "memtrace has CAP_SYS_PTRACE, so a security module of the kernel refuses it, as in a sandbox"
            }
        })
    }
}

/// Returns the names of the capabilities that memtrace lacks to open every file that a process has mapped.
pub fn missing_for_mapped_files() -> Vec<&'static str> {
    lacking(effective_capabilities())
}

fn lacking(capabilities: CapabilitySet) -> Vec<&'static str> {
    let mut names = Vec::new();
    if !capabilities.intersects(CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE) {
        names.push("CAP_DAC_READ_SEARCH");
    }
    // The links in `map_files` need one of these (`proc_map_files_get_link`, fs/proc/base.c).
    if !capabilities.intersects(CapabilitySet::CHECKPOINT_RESTORE | CapabilitySet::SYS_ADMIN) {
        names.push("CAP_CHECKPOINT_RESTORE");
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_capability_is_not_named_as_missing() {
        let all = CapabilitySet::all();
        let ptrace = CapabilitySet::SYS_PTRACE;
        assert_eq!(ReadRefusal::judge(all - ptrace, true), ReadRefusal::Capability);
        assert_eq!(ReadRefusal::judge(all - ptrace, false), ReadRefusal::Capability);
        assert_eq!(ReadRefusal::judge(all, false), ReadRefusal::UserNamespace);
        assert_eq!(ReadRefusal::judge(ptrace, true), ReadRefusal::SecurityModule);
    }

    #[test]
    fn capabilities_for_mapped_files_include_each_other() {
        assert_eq!(lacking(CapabilitySet::empty()), ["CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE"]);
        assert_eq!(lacking(CapabilitySet::SYS_ADMIN), ["CAP_DAC_READ_SEARCH"]);
        assert_eq!(lacking(CapabilitySet::DAC_OVERRIDE), ["CAP_CHECKPOINT_RESTORE"]);
        assert_eq!(lacking(CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH), [""; 0]);
    }
}
