//! Outcome of a run that wrote its report.

use memtrace_model::{Losses, UntracedProcess};

/// Outcome of a run that wrote its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) losses: Losses,
    /// `None` if there was no command, or if it ran longer than the trace.
    pub(crate) command: Option<CommandEnd>,
    /// False if events are missing that no loss counts, such as after a probe that could not be placed in a library
    /// loaded during the run.
    pub(crate) complete: bool,
    /// The largest process in scope, if none of them could be traced.
    pub(crate) none_traced: Option<UntracedProcess>,
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// Exit code, 0 to 255.
    Code(i32),
    /// Number of the signal that killed it.
    Signal(i32),
}
