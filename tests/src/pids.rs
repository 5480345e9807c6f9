//! Control of the pids that the kernel assigns.

use std::fs;

use crate::lane;

/// Smallest `kernel.pid_max` that the kernel accepts (`pid_max_min`, kernel/pid.c).
const SMALLEST: &str = "301";

const LAST: &str = "/proc/sys/kernel/ns_last_pid";
const MAX: &str = "/proc/sys/kernel/pid_max";

/// Makes the kernel assign the first unused pid from `pid` on to the next process (proc_sys_kernel(5)).
pub fn continue_at(pid: u32) {
    lane::require_whole_machine();
    fs::write(LAST, (pid - 1).to_string()).expect("root can set the last pid");
}

/// Setting of the smallest `kernel.pid_max`. Dropping it restores the earlier value. A machine with more processes than
/// this value cannot start another process, so only tests in guests use this setting.
pub struct SmallestPidMax {
    before: String,
}

impl SmallestPidMax {
    #[expect(clippy::new_without_default, reason = "it changes a setting of the machine")]
    #[must_use]
    pub fn new() -> Self {
        let before = fs::read_to_string(MAX).expect("pid_max is readable");
        fs::write(MAX, SMALLEST).expect("root can set pid_max");
        Self { before }
    }
}

impl Drop for SmallestPidMax {
    fn drop(&mut self) {
        let _ = fs::write(MAX, self.before.trim());
    }
}
