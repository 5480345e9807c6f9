//! Usage of threads and processes over time: the input of the picture.

use std::ops::Range;
use std::time::Duration;

use memtrace_model::{Comm, Pid, ProcessValues, ThreadIdentity, ThreadsEvent};

use super::series::{Series, SeriesPoint};

/// Maximum number of points of a timeline. Beyond it, points are merged.
pub(super) const TIMELINE_POINTS: usize = 2000;

/// Usage of a thread, or of all threads of a process, at a point of a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsagePoint {
    /// Allocated minus freed bytes since the start of the timeline; `None` if the heap is not counted.
    pub net: Option<i64>,
    /// Allocated bytes per second; `None` if the heap is not counted.
    pub alloc_rate: Option<f64>,
    /// Processor time as a share of one processor.
    pub processor: f64,
}

/// Memory and usage of a process at a point of a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessPoint {
    /// Memory and other values of the process.
    pub values: ProcessValues,
    /// Usage of all threads of the process, including threads without a series.
    pub usage: UsagePoint,
}

/// Usage of a thread over time.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSeries {
    /// Identity of the thread.
    pub thread: ThreadIdentity,
    /// Last name of the thread.
    pub comm: Comm,
    /// Start of the thread since the start of the monitor, if the thread started later and the time is known.
    pub started: Option<Duration>,
    /// End of the thread since the start of the monitor, if known.
    pub ended: Option<Duration>,
    /// Usage at the points of the timeline.
    pub points: Series<UsagePoint>,
}

impl ThreadSeries {
    /// Returns the largest absolute value of the net bytes; 0 if they are not known.
    pub(super) fn peak_net(&self) -> u64 {
        self.points.iter().filter_map(|(_, point)| point.net).map(i64::unsigned_abs).max().unwrap_or(0)
    }
}

/// Memory and usage of a process over time.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSeries {
    /// Process id.
    pub pid: Pid,
    /// Start of the process since the boot of the machine, in nanoseconds.
    pub start_ns: u64,
    /// Last name of the process's first thread.
    pub comm: Comm,
    /// Memory and usage at the points of the timeline.
    pub points: Series<ProcessPoint>,
}

/// Usage of threads and processes over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadTimeline {
    /// Title of the picture.
    pub title: String,
    /// Begin and end of each point since the start of the monitor, ascending. There is a gap if a point begins after
    /// the end of the point before.
    pub spans: Vec<Range<Duration>>,
    /// Threads with a series.
    pub threads: Vec<ThreadSeries>,
    /// Number of threads without a series. Their usage is included in the series of their processes only.
    pub more_threads: u64,
    /// Processes with their series.
    pub processes: Vec<ProcessSeries>,
    /// Events, ordered by time.
    pub events: Vec<ThreadsEvent>,
}

impl ThreadTimeline {
    /// Returns the begin of the first point and the end of the last one.
    pub(super) fn span(&self) -> Range<Duration> {
        let (first, last) = (self.spans.first(), self.spans.last());
        first.map_or(Duration::ZERO, |first| first.start)..last.map_or(Duration::ZERO, |last| last.end)
    }

    /// Merges points if there are more than [`TIMELINE_POINTS`]. Gaps remain, unless there are too many gaps.
    pub(super) fn merge_points(&mut self) {
        for keeps_gaps in [true, false] {
            if self.spans.len() > TIMELINE_POINTS {
                let span = self.span();
                // Unless a gap separates them, two consecutive groups are together longer than `longest`. So without
                // gaps, at most `TIMELINE_POINTS` groups remain.
                let longest = length(&span) / (TIMELINE_POINTS as u32 / 2 - 2);
                self.merge_groups(longest, keeps_gaps);
            }
        }
    }

    /// Merges short points, so that all points are about as long as the longest one.
    pub(super) fn equalize_points(&mut self) {
        let longest = self.spans.iter().map(length).max().unwrap_or_default();
        // Intervals differ slightly in length.
        self.merge_groups(longest + longest / 20, true);
    }

    fn merge_groups(&mut self, longest: Duration, keeps_gaps: bool) {
        let groups = self.groups(longest, keeps_gaps);
        let lengths: Vec<f64> = self.spans.iter().map(|span| length(span).as_secs_f64()).collect();
        self.threads.iter_mut().for_each(|series| series.points.merge(&groups, &lengths));
        self.processes.iter_mut().for_each(|series| series.points.merge(&groups, &lengths));
        let span = |group: &Range<usize>| self.spans[group.start].start..self.spans[group.end - 1].end;
        self.spans = groups.iter().map(span).collect();
    }

    /// Returns groups of consecutive points. A group is not longer than `longest`, or has a single point. The last
    /// point has its own group, so that the values at the end are exact.
    fn groups(&self, longest: Duration, keeps_gaps: bool) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let last = self.spans.len().saturating_sub(1);
        for (point, span) in self.spans.iter().enumerate() {
            let group = groups.last_mut().filter(|group| {
                let is_short = length(&(self.spans[group.start].start..span.end)) <= longest;
                is_short && point != last && !(keeps_gaps && self.has_gap_before(point))
            });
            match group {
                Some(group) => group.end = point + 1,
                None => groups.push(point..point + 1),
            }
        }
        groups
    }

    /// Returns true if there is a gap before a point.
    pub(super) fn has_gap_before(&self, point: usize) -> bool {
        point > 0 && self.spans[point].start > self.spans[point - 1].end
    }
}

fn length(span: &Range<Duration>) -> Duration {
    span.end.saturating_sub(span.start)
}

impl SeriesPoint for UsagePoint {
    fn merged([one, other]: [Option<Self>; 2], [first, second]: [f64; 2]) -> Self {
        let mean = |value: fn(&Self) -> Option<f64>| {
            let [one, other] = [&one, &other].map(|point| point.as_ref().and_then(value));
            let sum = one.unwrap_or(0.0) * first + other.unwrap_or(0.0) * second;
            one.or(other).map(|_| sum / (first + second).max(f64::EPSILON))
        };
        Self {
            net: other.and_then(|point| point.net).or_else(|| one.and_then(|point| point.net)),
            alloc_rate: mean(|point| point.alloc_rate),
            processor: mean(|point| Some(point.processor)).unwrap_or(0.0),
        }
    }
}

impl SeriesPoint for ProcessPoint {
    /// Keeps the values of the point with the larger RSS, so that peaks remain.
    fn merged(points: [Option<Self>; 2], lengths: [f64; 2]) -> Self {
        let usage = UsagePoint::merged(points.map(|point| point.map(|point| point.usage)), lengths);
        let largest = points.into_iter().flatten().map(|point| point.values).max_by_key(ProcessValues::rss);
        Self { values: largest.unwrap_or_default(), usage }
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{ProcessValue, Tid};

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns a timeline with a point per second. A point has a gap of one second before it if `gap` returns true.
    fn timeline(points: u64, gap: impl Fn(u64) -> bool) -> ThreadTimeline {
        let (mut usage, mut memory) = (Series::default(), Series::default());
        for at in 0..points {
            let point =
                UsagePoint { net: Some(at.cast_signed()), alloc_rate: Some(at as f64), processor: (at % 2) as f64 };
            usage.set(at as usize, point);
            let mut values = ProcessValues::default();
            ProcessValue::ALL[..3].iter().for_each(|kind| values.set(*kind, Some(0)));
            values.set(ProcessValue::RssAnon, Some(if at == 700 { 9 } else { 1 }));
            memory.set(at as usize, ProcessPoint { values, usage: point });
        }
        let thread = ThreadIdentity { pid: Pid(1), tid: Tid(2), start_ns: 3 };
        let comm = Comm::from("a");
        let thread = ThreadSeries { thread, comm: comm.clone(), started: None, ended: None, points: usage };
        let mut start = 0;
        let spans = (0..points).map(|at| {
            start += 1 + u64::from(gap(at));
            seconds(start - 1)..seconds(start)
        });
        ThreadTimeline {
            spans: spans.collect(),
            threads: vec![thread],
            processes: vec![ProcessSeries { pid: Pid(1), start_ns: 3, comm, points: memory }],
            ..ThreadTimeline::default()
        }
    }

    #[test]
    fn merged_points_keep_sums_peaks_and_the_end() {
        let mut merged = timeline(5001, |at| at == 1001);
        let whole = merged.clone();
        merged.merge_points();
        assert!((900..=TIMELINE_POINTS).contains(&merged.spans.len()), "{}", merged.spans.len());
        assert_eq!(merged.span(), whole.span());
        let gaps = |timeline: &ThreadTimeline| {
            let gaps = (0..timeline.spans.len()).filter(|at| timeline.has_gap_before(*at));
            gaps.map(|at| timeline.spans[at].start).collect::<Vec<_>>()
        };
        assert_eq!((gaps(&merged), gaps(&whole)), (vec![seconds(1002)], vec![seconds(1002)]));
        // The sum of rate times length stays the same.
        let sum = |timeline: &ThreadTimeline, value: fn(&UsagePoint) -> f64| {
            let points = timeline.spans.iter().enumerate();
            points
                .filter_map(|(at, span)| Some(value(timeline.threads[0].points.at(at)?) * length(span).as_secs_f64()))
                .sum::<f64>()
        };
        for value in [|point: &UsagePoint| point.alloc_rate.unwrap(), |point: &UsagePoint| point.processor] {
            let (before, after) = (sum(&whole, value), sum(&merged, value));
            assert!((before - after).abs() < 1e-3, "{before} {after}");
        }
        let last = merged.threads[0].points.at(merged.spans.len() - 1).unwrap();
        assert_eq!((last.net, last.alloc_rate), (Some(5000), Some(5000.0)));
        let rss = (0..merged.spans.len()).filter_map(|at| merged.processes[0].points.at(at)?.values.rss());
        assert_eq!(rss.max(), Some(9));
    }

    #[test]
    fn equal_points_are_not_merged() {
        let mut equal = timeline(100, |at| at == 50);
        equal.equalize_points();
        assert_eq!(equal, timeline(100, |at| at == 50));
    }

    #[test]
    fn a_timeline_of_gaps_is_merged_across_them() {
        let mut merged = timeline(9000, |_| true);
        merged.merge_points();
        assert!((900..=TIMELINE_POINTS).contains(&merged.spans.len()), "{}", merged.spans.len());
        let mut empty = ThreadTimeline::default();
        empty.merge_points();
        assert_eq!((empty.span(), empty), (Duration::ZERO..Duration::ZERO, ThreadTimeline::default()));
    }
}
