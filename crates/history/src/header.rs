//! Facts that hold for a whole recording.

use std::time::{Duration, SystemTime};

use memtrace_model::EventClass;

/// Facts that are known when a recording starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of memtrace.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Command line of memtrace.
    pub arguments: Vec<String>,
    /// Wall-clock time of the start of the trace. All other times are relative to it.
    pub start: SystemTime,
    /// Duration of an interval that is not merged.
    pub interval: Duration,
    /// Traced event classes.
    pub classes: Vec<EventClass>,
    /// Sampling period N of pages: one page in N is traced; 0 if pages are not traced.
    pub page_sample: u32,
    /// Minimum age of blocks that count as live; `None` if all blocks count.
    pub older: Option<Duration>,
}
