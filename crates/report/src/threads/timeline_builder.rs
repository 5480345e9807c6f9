//! Timeline of the intervals of a monitor.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{
    CounterSource, Pid, ProcessInterval, ThreadColumn, ThreadIdentity, ThreadInterval, ThreadUsage, ThreadsInterval,
};

use super::series::Series;
use super::timeline::{ProcessPoint, ProcessSeries, TIMELINE_POINTS, ThreadSeries, ThreadTimeline, UsagePoint};

/// Maximum number of threads with a series. If there are more, half of this number keep their series. Ended threads
/// lose their series first, then threads with the smallest net bytes.
const THREADS: usize = 4096;

/// Builder of a timeline from consecutive intervals. Its memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct TimelineBuilder {
    timeline: ThreadTimeline,
    /// Start of the monitor since the boot of the machine, in nanoseconds.
    start_ns: Option<u64>,
    /// True if points have been merged.
    has_merged: bool,
    threads: BTreeMap<ThreadIdentity, usize>,
    processes: BTreeMap<(Pid, u64), usize>,
}

impl TimelineBuilder {
    /// Returns a builder. `start_ns`: start of the monitor since the boot of the machine, in nanoseconds. Without it,
    /// the series have no starts of threads.
    #[must_use]
    pub fn new(title: String, start_ns: Option<u64>) -> Self {
        Self { timeline: ThreadTimeline { title, ..ThreadTimeline::default() }, start_ns, ..Self::default() }
    }

    /// Adds the next interval.
    pub fn add(&mut self, interval: &ThreadsInterval) {
        let point = self.timeline.spans.len();
        self.timeline.spans.push(interval.span.clone());
        self.timeline.events.extend(interval.events.iter().cloned());
        for process in &interval.processes {
            self.add_process(point, process, interval);
            for thread in &process.threads {
                self.add_thread(point, thread, process.source.source, interval);
            }
        }
        self.end_threads(point, interval);
        if self.timeline.threads.len() > THREADS {
            self.remove_small_threads();
        }
        if self.timeline.spans.len() > TIMELINE_POINTS {
            self.timeline.merge_points();
            self.has_merged = true;
        }
    }

    /// Returns the timeline.
    #[must_use]
    pub fn finish(mut self) -> ThreadTimeline {
        if self.has_merged {
            // Points that were added after the last merge are shorter than the merged points.
            self.timeline.equalize_points();
        }
        self.timeline
    }

    fn add_process(&mut self, point: usize, process: &ProcessInterval, interval: &ThreadsInterval) {
        let all = &mut self.timeline.processes;
        let place = *self.processes.entry((process.pid, process.start_ns)).or_insert_with(|| {
            let comm = process.comm.clone();
            all.push(ProcessSeries { pid: process.pid, start_ns: process.start_ns, comm, points: Series::default() });
            all.len() - 1
        });
        let series = &mut all[place];
        series.comm.clone_from(&process.comm);
        let before = || series.points.iter().rev().find_map(|(_, point)| point.usage.net);
        let usage = usage_point(&process.usage, process.source.source, before, interval.seconds());
        series.points.set(point, ProcessPoint { values: process.values, usage });
    }

    fn add_thread(&mut self, point: usize, thread: &ThreadInterval, source: CounterSource, interval: &ThreadsInterval) {
        let all = &mut self.timeline.threads;
        let start_ns = self.start_ns;
        let place = *self.threads.entry(thread.thread).or_insert_with(|| {
            let started =
                start_ns.and_then(|start| thread.thread.start_ns.checked_sub(start)).map(Duration::from_nanos);
            let (comm, points) = (thread.comm.clone(), Series::default());
            all.push(ThreadSeries { thread: thread.thread, comm, started, ended: None, points });
            all.len() - 1
        });
        let series = &mut all[place];
        series.comm.clone_from(&thread.comm);
        series.ended = thread.has_ended().then_some(interval.span.end);
        let before = || series.points.iter().rev().find_map(|(_, point)| point.net);
        let usage = usage_point(&thread.usage, source, before, interval.seconds());
        series.points.set(point, usage);
    }

    /// Sets the end of threads with a row in the interval before and no row in this one.
    fn end_threads(&mut self, point: usize, interval: &ThreadsInterval) {
        let Some(before) = point.checked_sub(1) else { return };
        // If there are more threads than rows, a thread without a row may still run.
        let has_others = |pid: Pid| {
            let process = interval.processes.iter().find(|process| process.pid == pid);
            process.is_some_and(|process| process.others.count > 0 && !process.has_exited)
        };
        for series in &mut self.timeline.threads {
            let is_gone = series.points.at(before).is_some() && series.points.at(point).is_none();
            if is_gone && series.ended.is_none() && !has_others(series.thread.pid) {
                series.ended = Some(interval.span.end);
            }
        }
    }

    fn remove_small_threads(&mut self) {
        let threads = &mut self.timeline.threads;
        threads.sort_by_cached_key(|series| (series.ended.is_some(), std::cmp::Reverse(series.peak_net())));
        let removed = threads.split_off(THREADS / 2);
        self.timeline.more_threads += removed.len() as u64;
        self.threads = threads.iter().enumerate().map(|(place, series)| (series.thread, place)).collect();
    }
}

/// Returns the usage at the point of an interval. `before` returns the net bytes at the previous point.
fn usage_point(
    usage: &ThreadUsage,
    source: CounterSource,
    before: impl FnOnce() -> Option<i64>,
    seconds: f64,
) -> UsagePoint {
    let is_known = source != CounterSource::None;
    UsagePoint {
        net: is_known.then(|| before().unwrap_or(0).saturating_add(usage.net())),
        alloc_rate: is_known.then(|| ThreadColumn::Alloc.value(usage, seconds)),
        processor: ThreadColumn::Cpu.value(usage, seconds),
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{
        Comm, OtherThreads, SourceState, TaskState, ThreadsEvent, ThreadsEventKind, Tid, UsageCounter,
    };

    use super::*;

    fn interval(at: u64, threads: &[(u32, u64)], others: u64) -> ThreadsInterval {
        let thread = |&(tid, bytes): &(u32, u64)| ThreadInterval {
            thread: ThreadIdentity { pid: Pid(1), tid: Tid(tid), start_ns: 1_000_000_000 * u64::from(tid) },
            comm: Comm::from("a"),
            state: TaskState::Running,
            usage: ThreadUsage::of(&[(UsageCounter::AllocBytes, bytes), (UsageCounter::UserTime, 500_000_000)]),
        };
        let threads: Vec<_> = threads.iter().map(thread).collect();
        let usage = threads.iter().map(|thread| thread.usage).sum();
        let process = ProcessInterval {
            pid: Pid(1),
            start_ns: 0,
            comm: Comm::from("p"),
            source: SourceState { source: CounterSource::Bpf, is_stale: false },
            usage,
            threads,
            ended: OtherThreads::default(),
            others: OtherThreads { count: others, ..OtherThreads::default() },
            started: 0,
            values: Default::default(),
            has_exited: false,
        };
        ThreadsInterval {
            span: Duration::from_secs(2 * at)..Duration::from_secs(2 * at + 2),
            processes: vec![process],
            ..ThreadsInterval::default()
        }
    }

    #[test]
    fn net_bytes_accumulate_over_intervals() {
        let mut builder = TimelineBuilder::new(String::from("t"), Some(2_000_000_000));
        let mark = ThreadsEvent { at: Duration::from_secs(3), kind: ThreadsEventKind::Mark(String::from("m")) };
        builder.add(&interval(0, &[(1, 10), (4, 1)], 0));
        builder.add(&ThreadsInterval { events: vec![mark.clone()], ..interval(1, &[(1, 20)], 1) });
        builder.add(&interval(2, &[(1, 0), (4, 5)], 0));
        builder.add(&interval(3, &[(4, 0)], 0));
        let timeline = builder.finish();
        let net = |thread: usize| {
            timeline.threads[thread].points.iter().map(|(at, point)| (at, point.net.unwrap())).collect::<Vec<_>>()
        };
        assert_eq!((net(0), net(1)), (vec![(0, 10), (1, 30), (2, 30)], vec![(0, 1), (2, 6), (3, 6)]));
        let of_process: Vec<_> =
            timeline.processes[0].points.iter().map(|(_, point)| point.usage.net.unwrap()).collect();
        assert_eq!(of_process, [11, 31, 36, 36]);
        let point = timeline.threads[0].points.at(1).unwrap();
        assert_eq!((point.alloc_rate, point.processor), (Some(10.0), 0.25));
        let [one, four] = [0, 1].map(|at| (timeline.threads[at].started, timeline.threads[at].ended));
        assert_eq!(one, (None, Some(Duration::from_secs(8))));
        // The thread had no row for one interval, because it was one of the `others`.
        assert_eq!(four, (Some(Duration::from_secs(2)), None));
        assert_eq!((timeline.events, timeline.title.as_str()), (vec![mark], "t"));
    }

    #[test]
    fn long_runs_with_many_threads_remain_bounded() {
        let mut builder = TimelineBuilder::new(String::new(), None);
        let per_interval = 4;
        for at in 0..3000_u32 {
            let ids: Vec<_> = (0..per_interval).map(|id| (at * per_interval + id + 2, u64::from(id))).collect();
            builder.add(&interval(u64::from(at), &[&[(1, 7)], ids.as_slice()].concat(), 0));
        }
        let timeline = builder.finish();
        assert!(timeline.spans.len() <= TIMELINE_POINTS && timeline.threads.len() <= THREADS);
        let lengths = timeline.spans[..timeline.spans.len() - 1].iter().map(|span| span.end - span.start);
        let [shortest, longest] = [lengths.clone().min(), lengths.max()].map(Option::unwrap);
        assert!(timeline.spans.len() > 500 && longest <= shortest * 2, "{shortest:?} {longest:?}");
        assert_eq!(timeline.threads.len() as u64 + timeline.more_threads, 12_001);
        let kept = timeline.threads.iter().find(|series| series.thread.tid == Tid(1)).unwrap();
        assert_eq!(kept.points.at(timeline.spans.len() - 1).unwrap().net, Some(21_000));
        let total = timeline.processes[0].points.at(timeline.spans.len() - 1).unwrap();
        assert_eq!(total.usage.net, Some(3000 * (7 + 6)));
    }
}
