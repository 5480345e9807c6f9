//! Settings that several commands have: outputs, recordings and moments.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use memtrace_model::Bytes;
use memtrace_report::Format;

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Time of the wall clock.
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
    /// Length of an interval of the recording.
    pub(crate) interval: Duration,
    /// Largest size of the file in bytes.
    pub(crate) size_limit: Bytes,
    /// Path of the socket for marks; `None` selects a socket in the user's directory.
    pub(crate) socket: Option<PathBuf>,
    /// Functions that set a mark when they are entered.
    pub(crate) mark_functions: Vec<MarkFunction>,
}

/// A function that sets a mark when it is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkFunction {
    /// Executable or library that contains the function.
    pub(crate) object: PathBuf,
    /// Symbol or demangled name of the function.
    pub(crate) name: String,
}

impl MarkFunction {
    /// Returns the text of the marks: the names of the file and the function.
    pub(crate) fn text(&self) -> String {
        let file = self.object.file_name().unwrap_or(self.object.as_os_str());
        format!("{}:{}", file.to_string_lossy(), self.name)
    }
}

/// A report to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) destination: Destination,
    pub(crate) format: Format,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    /// A file. The complete report replaces an earlier one.
    File(PathBuf),
}
