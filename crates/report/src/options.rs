//! Options of a report.

use memtrace_model::{GroupBy, Metric};

/// Options of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Metric that flame graphs draw. Lists are sorted by this metric.
    pub metric: Metric,
    /// Grouping key of the stacks.
    pub by: GroupBy,
    /// Maximum number of rows in each list of the text report, such as sites, processes and groups.
    pub top: usize,
    /// True to write every stack and process. Otherwise, the smallest ones are merged to bound the size of the
    /// report. The text always includes every stack.
    pub all_stacks: bool,
    /// Traced target, for titles: `pid 4711 (redis-server)`.
    pub subject: String,
}

impl Options {
    /// Returns the options of a comparison of all stacks.
    pub(super) const fn of_difference(metric: Metric, subject: String) -> Self {
        Self { metric, by: GroupBy::Comm, top: 0, all_stacks: true, subject }
    }
}
