//! Options of views.

use crate::model::{Metric, Requirement};

/// What a view shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewOptions {
    /// Parts of processes are distinguished.
    pub(crate) keeps_parts: bool,
    /// Number of ended processes that are listed by themselves.
    pub(crate) keep_ended: usize,
    /// Of live blocks, only those count that were allocated between the marks.
    pub(crate) counts_growth: bool,
    /// Memory over time is shown.
    pub(crate) has_timeline: bool,
}

/// Returns true if only blocks that were allocated between the marks count.
pub(crate) fn counts_growth(metric: Option<Metric>) -> bool {
    metric.is_some_and(|metric| metric.needs(Requirement::Marks))
}
