//! Options of a report.

use memtrace_model::{GroupBy, Metric};

use crate::table::COLUMNS;

/// Number of rows in lists of the text report, unless the user gives it.
pub const DEFAULT_ROWS: usize = 10;

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

/// Layout of the text report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLayout {
    /// Maximum width of a line, in characters.
    pub columns: usize,
    /// Sites in the list.
    pub sites: ListedSites,
}

/// Sites in the list of the text report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedSites {
    /// As many sites as the list has rows.
    Rows,
    /// Sites with at least 1 % of the metric's total, but not more sites than the list has rows.
    Large,
    /// Sites with at least 1 % of the metric's total, but not more sites than fit in a report of this number of lines.
    Fitting(usize),
}

impl Default for TextLayout {
    /// Returns the layout of a file with as many sites as the list has rows.
    fn default() -> Self {
        Self { columns: COLUMNS, sites: ListedSites::Rows }
    }
}

impl Options {
    /// Returns the options of a comparison of all stacks.
    pub(super) const fn of_difference(metric: Metric, subject: String) -> Self {
        Self { metric, by: GroupBy::Comm, top: 0, all_stacks: true, subject }
    }
}
