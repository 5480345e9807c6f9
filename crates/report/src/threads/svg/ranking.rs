//! Ranking of threads: the largest ones have curves and colours of their own.

use std::cmp::Reverse;

use crate::threads::timeline::{ThreadSeries, ThreadTimeline};

/// Maximum number of threads with a colour.
const THREADS: usize = 12;
/// Colours that differ clearly on a light background. Adjacent colours differ most.
const COLOURS: [&str; THREADS] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#1a3a6c",
    "#7fb069", "#f4b942",
];

/// The largest threads.
pub(super) struct Ranking<'a> {
    /// Threads with their colours, the largest first.
    pub(super) shown: Vec<(&'a ThreadSeries, &'static str)>,
    /// Number of threads without a colour.
    pub(super) others: u64,
}

impl<'a> Ranking<'a> {
    /// Ranks the threads by their largest absolute net bytes, then by allocated bytes, then by processor time.
    pub(super) fn of(timeline: &'a ThreadTimeline) -> Self {
        let mut threads: Vec<_> = timeline.threads.iter().collect();
        threads.sort_by_cached_key(|series| {
            let points = || series.points.iter().map(|(_, point)| point);
            // The casts saturate.
            let allocated = points().filter_map(|point| point.alloc_rate).sum::<f64>() as i64;
            let processor = (points().map(|point| point.processor).sum::<f64>() * 1e6) as i64;
            (Reverse((series.peak_net(), allocated, processor)), series.thread)
        });
        let shown: Vec<_> = threads.into_iter().zip(COLOURS).collect();
        let others = (timeline.threads.len() - shown.len()) as u64 + timeline.more_threads;
        Self { shown, others }
    }
}
