//! Exit times of processes within an interval.

use std::ops::Range;
use std::time::Duration;

use memtrace_model::{Pid, ThreadsEventKind, ThreadsInterval};
use rustc_hash::FxHashMap;

/// Exit events of an interval, by process.
pub(super) struct Ends {
    span: Range<Duration>,
    exits: FxHashMap<Pid, Duration>,
}

impl Ends {
    pub(super) fn of(interval: &ThreadsInterval) -> Self {
        let exits = interval.events.iter().filter_map(|event| match event.kind {
            ThreadsEventKind::Exit(pid) => Some((pid, event.at)),
            _ => None,
        });
        Self { span: interval.span.clone(), exits: exits.collect() }
    }

    /// Returns the end of a process: the time of its exit event, or the end of the interval if there is no exit event.
    pub(super) fn end_of(&self, pid: Pid) -> Duration {
        // The end must be after the start of the interval. Otherwise a merge of the earlier intervals would remove the
        // threads, although this interval can have rows of these threads.
        let first = (self.span.start + Duration::from_nanos(1)).min(self.span.end);
        self.exits.get(&pid).map_or(self.span.end, |at| (*at).clamp(first, self.span.end))
    }
}
