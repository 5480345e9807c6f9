//! State of a monitored process.

use memtrace_model::{OtherThreads, ProcessInterval, ThreadInterval, ThreadUsage};

use super::rows::{Rows, Slots, ThreadStep};
use super::sampling::{ProcessSample, ThreadSample};

/// Start of a process relative to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The process is in the baseline.
    Baseline,
    /// The process started before the baseline, and is monitored only since a later sampling.
    Earlier,
    /// The process started after the baseline.
    Later,
}

impl Origin {
    /// Returns the part of a usage that belongs to the time before the process was monitored. `usage`: counters at
    /// the first sampling of the process.
    fn earlier_part(self, usage: ThreadUsage) -> ThreadUsage {
        match self {
            Self::Baseline => usage,
            // The counters of the heap start at attach, so they contain no earlier usage.
            Self::Earlier => usage.only(|counter| !counter.is_of_heap()),
            Self::Later => ThreadUsage::default(),
        }
    }
}

/// State of a monitored process.
#[derive(Debug)]
pub(super) struct ProcessState {
    /// Sum of the usage before the first interval and in all intervals so far.
    reported: ThreadUsage,
    rows: Rows,
    started: u64,
    exited: u64,
    was_oom_killed: bool,
}

impl ProcessState {
    /// Returns the state before the first interval of a process.
    pub(super) fn new(origin: Origin, process: &ProcessSample, threads: &[ThreadSample], slots: &mut Slots) -> Self {
        let running = threads.iter().map(ThreadSample::usage_since_start);
        let total = running.fold(process.ended, ThreadUsage::plus);
        let is_later = origin == Origin::Later;
        Self {
            reported: origin.earlier_part(total),
            rows: Rows::new(threads, |usage| origin.earlier_part(usage), slots),
            started: if is_later { 0 } else { process.started },
            exited: if is_later { 0 } else { process.exited },
            was_oom_killed: process.oom_killed,
        }
    }

    /// Returns the number of slots that the process uses.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(super) const fn was_oom_killed(&self) -> bool {
        self.was_oom_killed
    }

    /// Ends an interval. `since_ns`: start of the interval since boot, in nanoseconds.
    pub(super) fn observe(
        &mut self,
        process: ProcessSample,
        threads: Vec<ThreadSample>,
        since_ns: u64,
        slots: &mut Slots,
    ) -> ProcessInterval {
        let step = self.rows.observe(threads, since_ns, slots);
        let certain: ThreadUsage = step.rows.iter().map(|row| row.usage).sum();
        // A thread that exits during the sampling is missing in the sum until the next sampling. The usage of the
        // certain rows counts nevertheless.
        let total = process.ended.plus(step.running).max(self.reported.plus(certain));
        let usage = total.since(self.reported);
        let parts = Parts::new(step, usage.since(certain));
        let interval = ProcessInterval {
            pid: process.pid,
            start_ns: process.start_ns,
            comm: process.comm,
            source: process.source,
            usage,
            threads: parts.rows,
            ended: OtherThreads { count: process.exited.saturating_sub(self.exited), usage: parts.ended },
            others: parts.others,
            started: process.started.saturating_sub(self.started),
            values: process.values,
            has_exited: process.has_exited,
        };
        self.reported = total;
        self.started = self.started.max(process.started);
        self.exited = self.exited.max(process.exited);
        self.was_oom_killed |= process.oom_killed;
        interval
    }
}

/// Parts of the usage of a process.
struct Parts {
    rows: Vec<ThreadInterval>,
    others: OtherThreads,
    ended: ThreadUsage,
}

impl Parts {
    /// Divides the usage of a process. `rest`: usage of the process minus the usage of the certain rows. The ended
    /// threads get the remainder of `rest`.
    fn new(step: ThreadStep, mut rest: ThreadUsage) -> Self {
        let mut take = |wanted: ThreadUsage| {
            let taken = wanted.min(rest);
            rest = rest.since(taken);
            taken
        };
        let mut rows = step.rows;
        rows.extend(step.late.into_iter().map(|row| ThreadInterval { usage: take(row.usage), ..row }));
        rows.sort_by_key(|row| row.thread);
        let others = OtherThreads { count: step.others, usage: take(step.others_growth) };
        Self { rows, others, ended: rest }
    }
}
