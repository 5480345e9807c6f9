//! Values of threads in the last intervals, for sparklines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use memtrace_model::{ProcessInterval, SourceState, ThreadColumn, ThreadIdentity, ThreadsInterval};

/// Maximum number of values of a thread.
pub(super) const LENGTH: usize = 20;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values of a column for each thread in the last intervals.
#[derive(Clone, Debug)]
pub struct ThreadHistory {
    column: ThreadColumn,
    /// Values of each thread, the oldest first; `None` for an interval without a value.
    threads: BTreeMap<ThreadIdentity, VecDeque<Option<f64>>>,
    /// Threads that ended in the last interval.
    ended: BTreeSet<ThreadIdentity>,
}

impl ThreadHistory {
    /// Returns an empty history. If `column` has no numbers, the history has the values of the default column.
    #[must_use]
    pub fn new(column: ThreadColumn) -> Self {
        let column = if column.counters().is_empty() { ThreadColumn::default() } else { column };
        Self { column, threads: BTreeMap::new(), ended: BTreeSet::new() }
    }

    /// Adds an interval. Removes threads without a value in the history, threads that ended before the interval, and
    /// threads of processes that have ended.
    pub fn add(&mut self, interval: &ThreadsInterval) {
        for thread in std::mem::take(&mut self.ended) {
            self.threads.remove(&thread);
        }
        for values in self.threads.values_mut() {
            values.push_back(None);
            if values.len() > LENGTH {
                values.pop_front();
            }
        }
        let (column, seconds) = (self.column, interval.seconds());
        for process in interval.processes.iter().filter(|process| is_known(column, process)) {
            for thread in &process.threads {
                let values = self.threads.entry(thread.thread).or_insert_with(|| VecDeque::from([None]));
                if let Some(last) = values.back_mut() {
                    *last = Some(column.value(&thread.usage, seconds));
                }
            }
        }
        let threads = interval.processes.iter().flat_map(|process| &process.threads);
        self.ended = threads.filter(|thread| thread.has_ended()).map(|thread| thread.thread).collect();
        let running = interval.processes.iter().filter(|process| !process.has_exited);
        let running: BTreeSet<_> = running.map(|process| process.pid).collect();
        let Self { threads, ended, .. } = self;
        threads.retain(|thread, values| {
            (running.contains(&thread.pid) || ended.contains(thread)) && values.iter().any(Option::is_some)
        });
    }

    /// Returns at most the last `width` values as Unicode block elements, aligned at the right. The lowest block
    /// stands for 0, or for the smallest value if that is negative.
    pub(super) fn sparkline(&self, thread: &ThreadIdentity, width: usize) -> String {
        let Some(values) = self.threads.get(thread) else { return String::new() };
        let shown = || values.iter().rev().take(width).rev();
        let [least, most] =
            shown().flatten().fold([0.0_f64; 2], |[least, most], &value| [least.min(value), most.max(value)]);
        let block = |value: f64| {
            let share = if most > least { (value - least) / (most - least) } else { 0.0 };
            let steps = BLOCKS.len() - 1;
            BLOCKS[(0..steps).filter(|step| share * steps as f64 >= *step as f64 + 0.5).count()]
        };
        let blocks: String = shown().map(|value| value.map_or(' ', block)).collect();
        format!("{blocks:>width$}")
    }
}

/// Returns true if the counters of `column` are known for `process` in its interval.
fn is_known(column: ThreadColumn, process: &ProcessInterval) -> bool {
    let SourceState { source, is_stale } = process.source;
    column.counters().iter().all(|counter| source.counts(*counter) && !(is_stale && counter.is_of_heap()))
}

#[cfg(test)]
mod tests {
    use memtrace_model::{CounterSource, TaskState, ThreadInterval, UsageCounter};

    use super::super::tests::{process, thread};
    use super::*;

    /// Adds an interval with one thread, which allocates and frees these bytes.
    fn add(history: &mut ThreadHistory, tid: u32, alloc: u64, free: u64) {
        let thread = thread(tid, "a", &[(UsageCounter::AllocBytes, alloc), (UsageCounter::FreeBytes, free)]);
        let processes = vec![process(CounterSource::Bpf, vec![thread])];
        history.add(&ThreadsInterval { processes, ..ThreadsInterval::default() });
    }

    fn line(history: &ThreadHistory, tid: u32, width: usize) -> String {
        history.sparkline(&thread(tid, "a", &[]).thread, width)
    }

    #[test]
    fn blocks_are_scaled_from_zero_to_the_largest_value() {
        let mut history = ThreadHistory::new(ThreadColumn::Alloc);
        (0..8).for_each(|value| add(&mut history, 1, value, 0));
        assert_eq!(line(&history, 1, 20), format!("{:>20}", "▁▂▃▄▅▆▇█"));
        assert_eq!(line(&history, 1, 2), "▇█");
        (0..20).for_each(|_| add(&mut history, 1, 0, 0));
        assert_eq!(line(&history, 1, 20), "▁".repeat(20));
        assert_eq!(line(&history, 2, 20), "");
    }

    #[test]
    fn negative_values_are_below_zero() {
        let mut history = ThreadHistory::new(ThreadColumn::Tid);
        [(0, 70), (70, 0), (0, 0)].into_iter().for_each(|(alloc, free)| add(&mut history, 1, alloc, free));
        assert_eq!(line(&history, 1, 3), "▁█▅");
    }

    #[test]
    fn threads_are_forgotten_after_their_last_value() {
        let mut history = ThreadHistory::new(ThreadColumn::Alloc);
        add(&mut history, 1, 5, 0);
        (0..LENGTH - 1).for_each(|_| add(&mut history, 2, 5, 0));
        assert_eq!((line(&history, 1, 20), history.threads.len()), (format!("{:<20}", "█"), 2));
        add(&mut history, 2, 5, 0);
        assert_eq!((line(&history, 1, 20), history.threads.len()), (String::new(), 1));
        history.add(&ThreadsInterval::default());
        assert_eq!(history.threads.len(), 0);
    }

    #[test]
    fn ended_threads_have_a_last_value() {
        let mut history = ThreadHistory::new(ThreadColumn::Alloc);
        add(&mut history, 1, 5, 0);
        let last = ThreadInterval { state: TaskState::Dead, ..thread(1, "a", &[(UsageCounter::AllocBytes, 5)]) };
        let mut exited = process(CounterSource::Bpf, vec![last]);
        exited.has_exited = true;
        history.add(&ThreadsInterval { processes: vec![exited], ..ThreadsInterval::default() });
        assert_eq!(line(&history, 1, 3), " ██");
        add(&mut history, 2, 5, 0);
        assert_eq!((line(&history, 1, 3), history.threads.len()), (String::new(), 1));
    }

    #[test]
    fn unknown_and_stale_values_are_spaces() {
        let mut history = ThreadHistory::new(ThreadColumn::Alloc);
        add(&mut history, 1, 5, 0);
        let mut unknown = process(CounterSource::None, vec![thread(1, "a", &[])]);
        history.add(&ThreadsInterval { processes: vec![unknown.clone()], ..ThreadsInterval::default() });
        (unknown.source.source, unknown.source.is_stale) = (CounterSource::Jemalloc, true);
        history.add(&ThreadsInterval { processes: vec![unknown], ..ThreadsInterval::default() });
        assert_eq!(line(&history, 1, 3), "█  ");
    }
}
