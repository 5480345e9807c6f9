//! Protection of memtrace from the OOM killer and from swapping.

use std::io;
use std::process;

use memtrace_host::privileges::{CapabilitySet, effective_capabilities};
use memtrace_host::procfs;
use memtrace_model::Pid;

/// The OOM killer never chooses a process with this score (`OOM_SCORE_ADJ_MIN`,
/// include/uapi/linux/oom.h).
const NEVER: i32 = -1000;

/// The OOM killer chooses a process with this score after all others.
const LAST: i32 = -999;

/// Protects memtrace from the OOM killer, and locks its memory. Processes that memtrace starts later inherit the OOM
/// score, so call this after the start of a command. Returns a warning for each protection that the system denies.
pub(crate) fn protect() -> Vec<String> {
    let memory = procfs::cgroup_memory(Pid(process::id()));
    // If the OOM killer may choose no process of a full cgroup, all processes of the cgroup hang in page faults: the
    // charge fails, and the fault is repeated (`mem_cgroup_out_of_memory`, mm/memcontrol.c).
    let score = if memory.is_some_and(|memory| memory.limit.is_some()) { LAST } else { NEVER };
    let mut warnings = Vec::new();
    if let Err(error) = procfs::set_own_oom_score(score) {
        warnings.push(format!("the OOM killer can choose memtrace: oom_score_adj needs CAP_SYS_RESOURCE ({error})"));
    }
    if let Err(error) = lock_memory() {
        warnings.push(format!(
            "memtrace's memory can be swapped out: locking it needs CAP_IPC_LOCK or an unlimited RLIMIT_MEMLOCK ({error})"
        ));
    }
    warnings
}

/// Locks the memory of memtrace: pages that are resident now, and other pages at their first use.
fn lock_memory() -> io::Result<()> {
    // Under a limit, allocations would fail when the locked memory reaches the limit.
    if !effective_capabilities().contains(CapabilitySet::IPC_LOCK) {
        raise_limit()?;
    }
    // SAFETY: the call has no conditions (mlockall(2)).
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes the limit of locked memory.
fn raise_limit() -> io::Result<()> {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a whole limit (setrlimit(2)).
    match unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
