//! Rules that select processes for tracing, as the user writes them.

use std::fmt;
use std::path::PathBuf;

use super::id::Pid;
use crate::{plain, printable};

/// Rule that includes or excludes the processes with an attribute. Exclusion takes precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// Attribute that the rule compares.
    pub attribute: ProcessAttribute,
    /// True if the rule excludes processes.
    pub exclude: bool,
}

/// Attribute of a process that a filter can match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessAttribute {
    /// Name, as `ps -o comm` shows it.
    Comm(String),
    /// Path of the executable.
    Exe(PathBuf),
    /// Control group (version 2) that contains the process, directly or in a descendant: a directory, or a path below
    /// the root group.
    Cgroup(PathBuf),
    /// Name or number of the real user.
    User(String),
    /// Process id. Only exclusion rules have it.
    Pid(Pid),
}

impl fmt::Display for ProcessAttribute {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comm(name) => write!(formatter, "command {}", plain(name)),
            Self::Exe(path) => write!(formatter, "executable {}", printable(path)),
            Self::Cgroup(path) => write!(formatter, "control group {}", printable(path)),
            Self::User(user) => write!(formatter, "user {}", plain(user)),
            Self::Pid(pid) => write!(formatter, "pid {pid}"),
        }
    }
}
