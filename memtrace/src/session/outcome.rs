//! How a run that wrote its report has ended.

use crate::model::Losses;

/// How a run that wrote its report has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was lost.
    pub losses: Losses,
    /// How the command ended; `None` where there was no command, or it was still running when tracing stopped.
    pub command: Option<CommandEnd>,
    /// Whether everything that was to be traced was; false where something is missing for which no loss is counted, such
    /// as a probe that could not be placed in a library loaded while running.
    pub complete: bool,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// It returned this exit code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}
