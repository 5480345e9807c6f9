//! Reasons why the kernel does not let memtrace read a process (`__ptrace_may_access`, kernel/ptrace.c) or its files.

use std::fmt;
use std::fs;
use std::path::Path;

use super::own_process::effective_capabilities;

/// Numbers of capabilities, from include/uapi/linux/capability.h.
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const CHECKPOINT_RESTORE: u32 = 40;

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
        Self::judge(own_capabilities(), in_root_user_namespace())
    }

    fn judge(capabilities: u64, in_root_user_namespace: bool) -> Self {
        if !has(capabilities, SYS_PTRACE) {
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
    lacking(own_capabilities())
}

fn lacking(capabilities: u64) -> Vec<&'static str> {
    let mut names = Vec::new();
    if !has(capabilities, DAC_READ_SEARCH) && !has(capabilities, DAC_OVERRIDE) {
        names.push("CAP_DAC_READ_SEARCH");
    }
    // The links in `map_files` need one of these (`proc_map_files_get_link`, fs/proc/base.c).
    if !has(capabilities, CHECKPOINT_RESTORE) && !has(capabilities, SYS_ADMIN) {
        names.push("CAP_CHECKPOINT_RESTORE");
    }
    names
}

/// Returns the effective capabilities of this thread.
fn own_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    effective_capabilities(&status).unwrap_or(0)
}

fn has(capabilities: u64, number: u32) -> bool {
    capabilities >> number & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_capability_is_not_named_as_missing() {
        let all = (1 << 41) - 1;
        let ptrace = 1 << SYS_PTRACE;
        assert_eq!(ReadRefusal::judge(all & !ptrace, true), ReadRefusal::Capability);
        assert_eq!(ReadRefusal::judge(all & !ptrace, false), ReadRefusal::Capability);
        assert_eq!(ReadRefusal::judge(all, false), ReadRefusal::UserNamespace);
        assert_eq!(ReadRefusal::judge(ptrace, true), ReadRefusal::SecurityModule);
    }

    #[test]
    fn capabilities_for_mapped_files_include_each_other() {
        assert_eq!(lacking(0), ["CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE"]);
        assert_eq!(lacking(1 << SYS_ADMIN), ["CAP_DAC_READ_SEARCH"]);
        assert_eq!(lacking(1 << DAC_OVERRIDE), ["CAP_CHECKPOINT_RESTORE"]);
        assert_eq!(lacking(1 << SYS_ADMIN | 1 << DAC_READ_SEARCH), [""; 0]);
    }
}
