//! Options of views.

use memtrace_model::{Metric, Requirement};

/// What a view shows.
#[derive(Clone, Copy, Debug)]
pub struct ViewOptions {
    /// Parts of processes are distinguished.
    pub keeps_parts: bool,
    /// Number of ended processes that are listed by themselves.
    pub keep_ended: usize,
    /// Of live blocks, only those count that were allocated between the marks.
    pub counts_growth: bool,
    /// Memory over time is shown.
    pub has_timeline: bool,
}

/// Returns true if only blocks that were allocated between the marks count.
pub fn counts_growth(metric: Option<Metric>) -> bool {
    metric.is_some_and(|metric| metric.needs(Requirement::Marks))
}
