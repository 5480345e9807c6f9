//! End of a process that is known by its pid and its start.

use memtrace_model::Pid;

use super::cpu_clock::ticks_per_second;
use super::pidfd::has_ended;
use super::process::start_time;

/// Returns true if a process has threads that run or exit. `start_ns`: start of the process since boot, in nanoseconds.
pub(crate) fn has_threads(pid: Pid, start_ns: u64) -> bool {
    // The start is read last: if it is the same, the pid belonged to the process at the first read too. In a time
    // namespace, `/proc` shows other starts, so the function returns false.
    !has_ended(pid) && start_time(pid).is_some_and(|start| start_in_ticks(start_ns) == Some(start))
}

/// Converts a start to the unit of `/proc/PID/stat` (`nsec_to_clock_t`, kernel/time/time.c).
fn start_in_ticks(start_ns: u64) -> Option<u64> {
    start_ns.checked_div(1_000_000_000 / ticks_per_second()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Returns the start of a process in nanoseconds since boot, rounded down to a tick.
    fn start_ns(pid: Pid) -> u64 {
        start_time(pid).unwrap() * (1_000_000_000 / ticks_per_second().unwrap())
    }

    #[test]
    fn earlier_process_with_the_same_pid_has_no_threads() {
        let own = Pid(std::process::id());
        assert!(has_threads(own, start_ns(own)));
        assert!(!has_threads(own, start_ns(own) - 1_000_000_000));
    }

    #[test]
    fn zombie_has_no_threads() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = Pid(child.id());
        let start_ns = start_ns(pid);
        assert!(has_threads(pid, start_ns));
        drop(child.stdin.take());
        // SAFETY: siginfo_t is plain data, and all zeros are a value of it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // WNOWAIT leaves the zombie.
        // SAFETY: `info` lives as long as the call.
        let waited = unsafe { libc::waitid(libc::P_PID, pid.0, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        assert_eq!(waited, 0);
        assert!(!has_threads(pid, start_ns));
        child.wait().unwrap();
        assert!(!has_threads(pid, start_ns));
    }
}
