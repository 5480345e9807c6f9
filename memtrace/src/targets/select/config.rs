//! The user's choice of targets and probe sites.

use std::ffi::OsString;

use memtrace_model::{FilterRule, Pid};

/// The processes to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Running processes.
    Pids {
        pids: Vec<Pid>,
        /// Trace their child processes too.
        children: bool,
    },
    /// A command to start.
    Command {
        /// The executable and its arguments.
        argv: Vec<OsString>,
        /// Exit with the exit code of the command.
        pass_exit_code: bool,
        /// Trace its child processes too.
        children: bool,
        /// Stop its processes at each exec, until their executables are probed.
        holds_execs: bool,
    },
    /// All processes that match rules, including those that start later.
    Selected {
        rules: Vec<FilterRule>,
        /// Wait for a process that matches, if none runs.
        waits: bool,
    },
}

impl Target {
    /// Returns true if processes are selected by their properties, and not only excluded.
    pub(crate) fn includes_some(&self) -> bool {
        matches!(self, Self::Selected { rules, .. } if rules.iter().any(|rule| !rule.exclude))
    }
}

/// Probed instructions of each hooked function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProbeSite {
    /// Instructions where registers have both the block and its size. If a call can miss all of them, the same probes as
    /// [`Self::Return`].
    #[default]
    Best,
    /// The return, and the first instruction that the kernel can emulate, if each call executes it; otherwise the
    /// first instruction of the function.
    Return,
    Entry,
}
