//! Outcome of a run that wrote its report.

use memtrace_model::{Losses, UntracedProcess};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) losses: Losses,
    /// End of the command; `None` if there was no command, or if it ran longer than the trace.
    pub(crate) command: Option<CommandEnd>,
    /// False if events are missing that no loss counts. For example, a library was loaded during
    /// the run, and its probe could not be placed.
    pub(crate) complete: bool,
    /// The largest process in scope, if none of them could be traced.
    pub(crate) none_traced: Option<UntracedProcess>,
    /// Name of the target, if it selects processes by their properties, and no selected process has run.
    pub(crate) nothing_selected: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// Exit code, 0 to 255.
    Code(i32),
    /// Number of the signal that killed the command.
    Signal(i32),
}
