//! What the user chooses for several commands: outputs, recordings and moments.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use memtrace_model::Bytes;
use memtrace_report::Format;

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// By the wall clock.
    Clock(SystemTime),
    /// Time since the start of tracing.
    AfterStart(Duration),
    /// Time before the end of the recording.
    BeforeEnd(Duration),
}

/// A recording to write during the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recording {
    pub(crate) path: PathBuf,
    /// Time between two recorded moments.
    pub(crate) interval: Duration,
    /// Largest size of the file.
    pub(crate) size_limit: Bytes,
    /// Socket for marks; `None` for one in the directory of the user.
    pub(crate) socket: Option<PathBuf>,
    /// Functions that set a mark when they are entered.
    pub(crate) mark_functions: Vec<MarkFunction>,
}

/// A function that sets a mark when it is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkFunction {
    /// The executable or library.
    pub(crate) object: PathBuf,
    /// Its symbol, or its demangled name.
    pub(crate) name: String,
}

impl MarkFunction {
    /// Returns the text of its marks: the name of the file and the function.
    pub(crate) fn text(&self) -> String {
        let file = self.object.file_name().unwrap_or(self.object.as_os_str());
        format!("{}:{}", file.to_string_lossy(), self.name)
    }
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) destination: Destination,
    pub(crate) format: Format,
}

/// Destination of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    /// A file, replaced when the report is complete.
    File(PathBuf),
}
