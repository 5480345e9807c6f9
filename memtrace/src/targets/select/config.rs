//! What the user chooses about targets and their probes.

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
        /// Exit with the command's exit code.
        pass_exit_code: bool,
        /// Trace its child processes too.
        children: bool,
    },
    /// All processes that match these rules, including those that start later.
    Selected(Vec<FilterRule>),
}

/// Instruction to probe in each hooked function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProbeSite {
    /// The first that the kernel emulates, if it is proven to be equivalent to the entry.
    #[default]
    Best,
    /// As [`Self::Best`], but the return of each function that returns a block is probed too.
    Return,
    Entry,
}
