//! Conditions that became true.

use std::fmt;
use std::time::Duration;

use memtrace_model::Pid;

/// A condition that became true for a subject. `Display` writes a line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Text of the condition, such as `net > 1GiB/min`.
    pub condition: String,
    /// Description of the subject, such as `process 4711 (redis)`. Control characters in names are replaced.
    pub subject: String,
    /// Process that can be traced; `None` for the machine and for cgroups.
    pub pid: Option<Pid>,
    /// Value with its unit, such as `1.20 GiB/min`.
    pub value: String,
    /// Limit with its unit, such as `1GiB/min`.
    pub limit: String,
    /// End of the interval, since the start of the monitor.
    pub at: Duration,
}

impl fmt::Display for Firing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}, {}", self.condition, self.subject, self.value)
    }
}
