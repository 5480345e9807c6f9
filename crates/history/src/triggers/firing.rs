//! Conditions that became true.

use std::fmt;
use std::time::Duration;

use memtrace_model::Pid;

/// A condition that became true for a subject. `Display` writes a line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Text of the condition: `net > 1GiB/min`.
    pub condition: String,
    /// Description of the subject: `process 4711 (redis)`. Names are plain text.
    pub subject: String,
    /// Process that can be traced.
    pub pid: Option<Pid>,
    /// The value: `1.20 GiB/min`.
    pub value: String,
    /// The limit: `1GiB/min`.
    pub limit: String,
    /// End of the interval, since the start of the monitor.
    pub at: Duration,
}

impl fmt::Display for Firing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}, {}", self.condition, self.subject, self.value)
    }
}
