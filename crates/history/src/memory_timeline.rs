//! Collects the values of a memory timeline in bounded memory.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::time::Duration;

use memtrace_model::{
    Comm, EventClass, ImageId, MemoryCounter, MemoryTimeline, Pid, PressureCounter, ProcessTimeline, Steps,
};
use rustc_hash::FxHashMap;

/// Key of a series: a counter of an event class, or a counter that does not depend on the class.
type Key = (Option<EventClass>, MemoryCounter);

/// Collects values at the ends of intervals. If there are too many moments, each pair of moments becomes one. If there
/// are too many processes, the smallest have no series. A process that grows replaces the smallest one with a series.
#[derive(Clone, Debug, Default)]
pub struct MemoryTimelineBuilder {
    /// Moments, as the time since tick 0.
    ends: Vec<Duration>,
    /// Number of intervals from one moment to the next; 0 stands for 1.
    length: u32,
    /// Number of intervals from the last moment but one to the last moment.
    last_length: u32,
    total: BTreeMap<Key, Steps>,
    processes: BTreeMap<ImageId, Process>,
    /// Names of processes that have no values yet.
    names: FxHashMap<ImageId, Comm>,
    /// Processes without series, with their last values.
    small: FxHashMap<ImageId, Process>,
    marks: Vec<(Duration, String)>,
    pressure: BTreeMap<PressureCounter, Steps>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    comm: Comm,
    counters: BTreeMap<Key, Steps>,
    has_ended: bool,
}

impl Process {
    /// Returns the largest value of any counter of the process, except for allocated memory, which never shrinks.
    fn weight(&self) -> u64 {
        let held = self.counters.iter().filter(|((_, counter), _)| *counter != MemoryCounter::Allocated);
        held.map(|(_, steps)| steps.greatest()).max().unwrap_or_default()
    }
}

impl MemoryTimelineBuilder {
    /// Maximum number of moments.
    const MAX_MOMENTS: usize = 1024;

    /// Maximum number of processes with series.
    const MAX_PROCESSES: usize = 64;

    /// Maximum number of marks. Later marks are dropped.
    const MAX_MARKS: usize = 1000;

    /// Sets the name of a process.
    pub(crate) fn set_comm(&mut self, image: ImageId, comm: &Comm) {
        match self.processes.get_mut(&image).or_else(|| self.small.get_mut(&image)) {
            Some(process) => process.comm.clone_from(comm),
            None => _ = self.names.insert(image, comm.clone()),
        }
    }

    /// Adds changes of the live and allocated bytes of a class in the current interval. Decreases wrap. Changes of
    /// merged processes have PID 0 and count in the sums only.
    pub(crate) fn add_change(&mut self, class: EventClass, image: ImageId, live: u64, allocated: u64) {
        let moment = self.moment();
        for (counter, change) in [(MemoryCounter::Live, live), (MemoryCounter::Allocated, allocated)] {
            // No event reports that a page is no longer resident, so the live amount of pages is left out.
            if change == 0 || counter == MemoryCounter::Live && class.counts_pages() {
                continue;
            }
            let key = (Some(class), counter);
            self.total.entry(key).or_default().add(moment, change);
            if image.pid != Pid(0) {
                self.process(image).counters.entry(key).or_default().add(moment, change);
            }
        }
    }

    /// Sets a counter of a process at the end of the current interval.
    pub(crate) fn set(&mut self, image: ImageId, counter: MemoryCounter, value: u64) {
        let moment = self.moment();
        let process = self.process(image);
        if !process.has_ended {
            process.counters.entry((None, counter)).or_default().set(moment, value);
        }
    }

    /// Sets a counter of the machine's memory pressure at the end of the current interval.
    pub(crate) fn set_pressure(&mut self, counter: PressureCounter, value: u64) {
        let moment = self.moment();
        self.pressure.entry(counter).or_default().set(moment, value);
    }

    /// Ends a process: it has no resident memory from the end of the current interval on. Calls of [`Self::add_change`]
    /// can follow.
    pub(crate) fn end(&mut self, image: ImageId) {
        let moment = self.moment();
        let process = self.process(image);
        process.has_ended = true;
        for (_, steps) in process.counters.iter_mut().filter(|((class, _), _)| class.is_none()) {
            steps.set(moment, 0);
        }
    }

    /// Adds a mark with its time since tick 0.
    pub(crate) fn add_mark(&mut self, at: Duration, text: &str) {
        if self.marks.len() < Self::MAX_MARKS {
            self.marks.push((at, text.to_owned()));
        }
    }

    /// Ends the current interval at `end`, the time since tick 0.
    pub(crate) fn end_interval(&mut self, end: Duration) {
        match self.ends.last_mut() {
            Some(last) if self.last_length < self.length => {
                *last = end;
                self.last_length += 1;
            }
            _ => {
                self.ends.push(end);
                self.last_length = 1;
            }
        }
        if self.ends.len() == Self::MAX_MOMENTS && self.last_length >= self.length {
            self.join_moments();
        }
        self.choose_processes();
    }

    /// Returns the timeline of a class. One page in `sample` was recorded. `trace` has the begin and end of tracing, as
    /// times since tick 0.
    pub(crate) fn finish(&self, class: EventClass, sample: u32, trace: &Range<Duration>) -> MemoryTimeline {
        let since_start = |time: Duration| time.min(trace.end).saturating_sub(trace.start);
        // The last intervals of a run have almost no duration. Intervals with equal ends share a moment.
        let mut moments: Vec<Duration> = Vec::with_capacity(self.ends.len());
        let mut numbers = Vec::with_capacity(self.ends.len());
        for end in self.ends.iter().map(|&end| since_start(end)) {
            if moments.last() != Some(&end) {
                moments.push(end);
            }
            numbers.push(moments.len() - 1);
        }
        // Values of the interval in progress get the index of the next moment.
        let number = |moment: usize| numbers.get(moment).copied().unwrap_or(moments.len());
        let of_class = |counters: &BTreeMap<Key, Steps>| -> BTreeMap<MemoryCounter, Steps> {
            let own = counters.iter().filter(|((of, _), _)| of.is_none_or(|of| of == class));
            let renumbered = own.map(|((of, counter), steps)| {
                let mut steps = steps.clone();
                steps.renumber(number);
                if of.is_some() {
                    steps.scale(sample.max(1).into());
                }
                (*counter, steps)
            });
            renumbered.collect()
        };
        let process = |(&id, process): (&ImageId, &Process)| ProcessTimeline {
            id,
            comm: process.comm.clone(),
            counters: of_class(&process.counters),
        };
        let renumbered = |(&counter, steps): (&PressureCounter, &Steps)| {
            let mut steps = steps.clone();
            steps.renumber(number);
            (counter, steps)
        };
        let pressure = self.pressure.iter().map(renumbered).collect();
        let total = of_class(&self.total);
        let processes = self.processes.iter().map(process).filter(|process| !process.counters.is_empty()).collect();
        MemoryTimeline {
            start: trace.start,
            moments,
            total,
            processes,
            pressure,
            left_out: self.small.len() as u64,
            marks: self.marks.iter().map(|(at, text)| (since_start(*at), text.clone())).collect(),
        }
    }

    /// Returns the index of the moment at the end of the current interval.
    fn moment(&self) -> usize {
        if self.last_length < self.length { self.ends.len() - 1 } else { self.ends.len() }
    }

    fn process(&mut self, image: ImageId) -> &mut Process {
        match self.small.entry(image) {
            Entry::Occupied(small) => small.into_mut(),
            Entry::Vacant(_) => self.processes.entry(image).or_insert_with(|| {
                let comm = self.names.remove(&image).unwrap_or_default();
                Process { comm, ..Process::default() }
            }),
        }
    }

    /// Joins each pair of moments. The value at the second moment remains.
    fn join_moments(&mut self) {
        self.ends = self.ends.chunks_exact(2).map(|pair| pair[1]).collect();
        let counters = self
            .processes
            .values_mut()
            .chain(self.small.values_mut())
            .map(|process| &mut process.counters)
            .chain([&mut self.total]);
        for steps in counters.flat_map(BTreeMap::values_mut).chain(self.pressure.values_mut()) {
            steps.renumber(|moment| moment / 2);
        }
        self.length = self.length.max(1).saturating_mul(2);
        self.last_length = self.length;
    }

    /// Keeps the series of the largest processes.
    fn choose_processes(&mut self) {
        let mut rows: Vec<_> = self.processes.iter().map(|(&id, process)| (process.weight(), id)).collect();
        rows.sort_unstable_by(|one, other| other.cmp(one));
        let least = rows.get(Self::MAX_PROCESSES - 1).map_or(0, |(weight, _)| *weight);
        if !self.small.is_empty() {
            let grown = self.small.iter().map(|(&id, process)| (process.weight(), id));
            let grown: Vec<_> = grown.filter(|(weight, _)| *weight > least).collect();
            for row in grown {
                self.processes.extend(self.small.remove(&row.1).map(|process| (row.1, process)));
                rows.push(row);
            }
            rows.sort_unstable_by(|one, other| other.cmp(one));
            let counters = self.small.values_mut().flat_map(|process| process.counters.values_mut());
            counters.for_each(Steps::forget_all_but_last);
        }
        for (_, id) in rows.into_iter().skip(Self::MAX_PROCESSES) {
            if let Some(mut process) = self.processes.remove(&id) {
                process.counters.values_mut().for_each(Steps::forget_all_but_last);
                self.small.insert(id, process);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn image(pid: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal: 0 }
    }

    fn timeline(builder: &MemoryTimelineBuilder, seconds: u32) -> MemoryTimeline {
        builder.finish(EventClass::Heap, 1, &(SECOND..SECOND * seconds))
    }

    #[test]
    fn values_are_those_at_the_moments() {
        let mut builder = MemoryTimelineBuilder::default();
        builder.add_change(EventClass::Heap, image(1), 100, 150);
        builder.add_change(EventClass::Map, image(1), 7, 7);
        builder.set(image(1), MemoryCounter::RssFile, 30);
        builder.set_comm(image(1), &Comm::from("a"));
        builder.end_interval(SECOND * 2);
        builder.add_change(EventClass::Heap, image(1), 0_u64.wrapping_sub(40), 0);
        builder.add_change(EventClass::Heap, image(2), 5, 5);
        builder.add_mark(SECOND * 3, "loaded");
        builder.set_pressure(PressureCounter::Some, 9);
        builder.end_interval(SECOND * 3);
        builder.end(image(1));
        builder.end_interval(SECOND * 4 + Duration::from_nanos(1));
        let timeline = timeline(&builder, 4);
        assert_eq!(timeline.moments, [SECOND, SECOND * 2, SECOND * 3]);
        builder.add_change(EventClass::Heap, image(2), 1, 1);
        builder.end_interval(SECOND * 4 + Duration::from_nanos(2));
        let joined = self::timeline(&builder, 4);
        assert_eq!(joined.moments, timeline.moments);
        assert_eq!(joined.total[&MemoryCounter::Live].at(2), Some(66));
        assert_eq!(timeline.marks, [(SECOND * 2, String::from("loaded"))]);
        let at =
            |counters: &BTreeMap<MemoryCounter, Steps>, counter| [0, 1, 2].map(|moment| counters[&counter].at(moment));
        assert_eq!(at(&timeline.total, MemoryCounter::Live), [Some(100), Some(65), Some(65)]);
        assert_eq!(at(&timeline.total, MemoryCounter::Allocated), [Some(150), Some(155), Some(155)]);
        let [first, second] = timeline.processes.as_slice() else { panic!("{timeline:?}") };
        assert_eq!((&first.comm, first.id), (&Comm::from("a"), image(1)));
        assert_eq!(at(&first.counters, MemoryCounter::Live), [Some(100), Some(60), Some(60)]);
        assert_eq!(at(&first.counters, MemoryCounter::RssFile), [Some(30), Some(30), Some(0)]);
        assert_eq!(at(&second.counters, MemoryCounter::Live), [None, Some(5), Some(5)]);
        let pressure = &timeline.pressure[&PressureCounter::Some];
        assert_eq!([0, 1, 2].map(|moment| pressure.at(moment)), [None, Some(9), Some(9)]);
    }

    #[test]
    fn name_can_be_known_before_the_first_value() {
        let mut builder = MemoryTimelineBuilder::default();
        builder.set_comm(image(1), &Comm::from("sh"));
        builder.end_interval(SECOND * 2);
        builder.add_change(EventClass::Heap, image(1), 5, 5);
        builder.end_interval(SECOND * 3);
        let timeline = timeline(&builder, 3);
        assert_eq!(timeline.processes.iter().map(|process| &process.comm).collect::<Vec<_>>(), [&Comm::from("sh")]);
    }

    #[test]
    fn moments_are_bounded_and_exact() {
        let mut builder = MemoryTimelineBuilder::default();
        for number in 1..=20_000_u32 {
            builder.add_change(EventClass::Heap, image(1), 10, 10);
            builder.end_interval(SECOND * number);
            assert!(builder.ends.len() <= MemoryTimelineBuilder::MAX_MOMENTS);
        }
        let timeline = builder.finish(EventClass::Heap, 1, &(Duration::ZERO..SECOND * 20_000));
        assert!(timeline.moments.len() > MemoryTimelineBuilder::MAX_MOMENTS / 2);
        assert_eq!(timeline.moments.last(), Some(&(SECOND * 20_000)));
        for (number, moment) in timeline.moments.iter().enumerate() {
            assert_eq!(timeline.total[&MemoryCounter::Live].at(number), Some(moment.as_secs() * 10));
        }
    }

    #[test]
    fn small_processes_are_left_out_of_rows_but_not_of_sums() {
        let mut builder = MemoryTimelineBuilder::default();
        let processes = MemoryTimelineBuilder::MAX_PROCESSES as u32 + 3;
        for round in 1..=3 {
            for pid in 1..=processes {
                builder.add_change(EventClass::Heap, image(pid), pid.into(), 0);
            }
            builder.end_interval(SECOND * round);
        }
        let timeline = timeline(&builder, 9);
        assert_eq!((timeline.processes.len(), timeline.left_out), (MemoryTimelineBuilder::MAX_PROCESSES, 3));
        assert_eq!(timeline.processes[0].id, image(4));
        assert_eq!(timeline.processes[0].counters[&MemoryCounter::Live].at(2), Some(12));
        let sum: u32 = (1..=processes).sum();
        assert_eq!(timeline.total[&MemoryCounter::Live].at(2), Some(u64::from(sum) * 3));
    }

    #[test]
    fn process_that_grows_gets_a_series() {
        let mut builder = MemoryTimelineBuilder::default();
        let late = image(1000);
        for round in 1..=20_u32 {
            for pid in 1..=MemoryTimelineBuilder::MAX_PROCESSES as u32 {
                builder.add_change(EventClass::Heap, image(pid), if round == 1 { 100 } else { 0 }, 0);
            }
            builder.add_change(EventClass::Heap, late, 10, 10);
            builder.end_interval(SECOND * round);
        }
        let timeline = timeline(&builder, 99);
        let row = timeline.processes.iter().find(|process| process.id == late).expect("it is the largest");
        let live = &row.counters[&MemoryCounter::Live];
        // The process has no values from the time before it had a series.
        assert_eq!([0, 8, 10, 19].map(|moment| live.at(moment)), [None, None, Some(110), Some(200)]);
        assert_eq!((timeline.processes.len(), timeline.left_out), (MemoryTimelineBuilder::MAX_PROCESSES, 1));
    }

    #[test]
    fn changes_after_the_end_of_a_process_count() {
        let mut builder = MemoryTimelineBuilder::default();
        for pid in 1..=MemoryTimelineBuilder::MAX_PROCESSES as u32 + 1 {
            builder.add_change(EventClass::Heap, image(pid), 100 + u64::from(pid), 0);
        }
        builder.set(image(9), MemoryCounter::RssFile, 5);
        builder.end_interval(SECOND * 2);
        for pid in [1, 9] {
            builder.end(image(pid));
            builder.add_change(EventClass::Heap, image(pid), 0_u64.wrapping_sub(100 + u64::from(pid)), 0);
            builder.set(image(pid), MemoryCounter::RssFile, 77);
        }
        builder.end_interval(SECOND * 3);
        builder.end_interval(SECOND * 4);
        let timeline = timeline(&builder, 99);
        assert_eq!((timeline.processes.len(), timeline.left_out), (MemoryTimelineBuilder::MAX_PROCESSES, 1));
        let ended = timeline.processes.iter().find(|process| process.id == image(9)).expect("it has a row");
        let at = |counter| [0, 1, 2].map(|moment| ended.counters[&counter].at(moment));
        assert_eq!(at(MemoryCounter::Live), [Some(109), Some(0), Some(0)]);
        assert_eq!(at(MemoryCounter::RssFile), [Some(5), Some(0), Some(0)]);
    }

    #[test]
    fn sampled_pages_are_scaled_and_have_no_live_amount() {
        let mut builder = MemoryTimelineBuilder::default();
        builder.add_change(EventClass::Fault, image(1), 4096, 4096);
        builder.set(image(1), MemoryCounter::RssAnonymous, 4096);
        builder.end_interval(SECOND * 2);
        let timeline = builder.finish(EventClass::Fault, 64, &(SECOND..SECOND * 2));
        let counters = &timeline.processes[0].counters;
        assert_eq!(counters.get(&MemoryCounter::Live), None);
        assert_eq!(counters[&MemoryCounter::Allocated].at(0), Some(64 * 4096));
        assert_eq!(counters[&MemoryCounter::RssAnonymous].at(0), Some(4096));
    }

    #[test]
    fn merged_processes_are_a_part_of_the_sum() {
        let mut builder = MemoryTimelineBuilder::default();
        builder.add_change(EventClass::Heap, image(0), 100, 100);
        builder.end_interval(SECOND * 2);
        let timeline = timeline(&builder, 9);
        assert_eq!((timeline.processes.len(), timeline.total[&MemoryCounter::Live].at(0)), (0, Some(100)));
    }
}
