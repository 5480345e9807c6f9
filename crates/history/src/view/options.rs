//! Options of views.

use memtrace_model::{Metric, Requirement};

/// Options of a view.
#[derive(Clone, Copy, Debug)]
pub struct ViewOptions {
    /// True if the parts of a process (threads, allocators, tags, kinds of memory) have totals of their own.
    pub keeps_parts: bool,
    /// Maximum number of ended processes that are listed by themselves.
    pub keep_ended: usize,
    /// True if live blocks count only if they were allocated between the marks.
    pub counts_growth: bool,
    /// True if the view has memory over time.
    pub has_timeline: bool,
}

/// Returns true if the metric counts only blocks that were allocated between two marks.
pub fn counts_growth(metric: Option<Metric>) -> bool {
    metric.is_some_and(|metric| metric.needs(Requirement::Marks))
}
