//! Options of a report.

use crate::model::{GroupBy, Metric};

/// How a profile is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is drawn, and what stacks are ranked by.
    pub metric: Metric,
    /// What stacks are put together under.
    pub by: GroupBy,
    /// How many sites, processes and other roots the text lists.
    pub top: usize,
    /// What was traced, for titles: `pid 4711 (redis-server)`.
    pub subject: String,
}
