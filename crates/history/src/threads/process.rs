//! State of a monitored process.

use memtrace_model::{OtherThreads, ProcessInterval, SourceState, ThreadInterval, ThreadUsage};

use super::rows::{Exits, Origin, Rows, Slots, ThreadStep};
use super::sampling::{ProcessSample, ThreadSample};

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
        // The baseline ends no interval. The exits of a later sampling belong to the interval that ends there.
        let exits: &[ThreadSample] = if origin == Origin::Baseline { &[] } else { &process.exits };
        let is_later = origin == Origin::Later;
        Self {
            reported: origin.earlier_part(total),
            rows: Rows::new(threads, exits, origin, slots),
            started: if is_later { 0 } else { process.started },
            exited: if is_later { 0 } else { process.exited.saturating_sub(exits.len() as u64) },
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
        let ended = process.exited.saturating_sub(self.exited);
        let exits = Exits { threads: process.exits, count: ended };
        let step = self.rows.observe(threads, exits, since_ns, slots);
        let certain: ThreadUsage = step.rows.iter().map(|row| row.usage).sum();
        let counted = process.ended.plus(step.running);
        self.reported = self.reported.plus(step.adopted);
        let mixed = step.mixed.min(counted.since(self.reported.plus(certain)));
        self.reported = self.reported.plus(mixed);
        let has_adopted = step.adopted.plus(mixed) != ThreadUsage::default();
        // A thread that exits during the sampling is missing in the sum until the next sampling. The usage of the
        // certain rows still counts.
        let total = counted.max(self.reported.plus(certain));
        let usage = total.since(self.reported);
        let parts = Parts::new(step, usage.since(certain));
        let listed = parts.rows.iter().filter(|row| row.has_ended()).count() as u64;
        let interval = ProcessInterval {
            pid: process.pid,
            start_ns: process.start_ns,
            comm: process.comm,
            // The usage of the heap is known only for a part of the interval.
            source: SourceState { is_stale: process.source.is_stale || has_adopted, ..process.source },
            usage,
            threads: parts.rows,
            ended: OtherThreads { count: ended.saturating_sub(listed), usage: parts.ended },
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
    /// threads without rows get the remainder of `rest`.
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
