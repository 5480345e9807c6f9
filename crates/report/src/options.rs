//! Options of a report.

use memtrace_model::{GroupBy, Metric};

/// Options of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Metric that is drawn and by which stacks are sorted.
    pub metric: Metric,
    /// Key by which stacks are grouped.
    pub by: GroupBy,
    /// Number of sites, processes and groups in the text.
    pub top: usize,
    /// Write every stack and process; otherwise the smallest are merged to bound the size of the report. The text
    /// always includes every stack.
    pub all_stacks: bool,
    /// Target for titles: `pid 4711 (redis-server)`.
    pub subject: String,
}

impl Options {
    /// Returns the options of a comparison of all stacks.
    pub(super) const fn of_difference(metric: Metric, subject: String) -> Self {
        Self { metric, by: GroupBy::Comm, top: 0, all_stacks: true, subject }
    }
}
