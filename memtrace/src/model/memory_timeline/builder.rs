//! Collection of the values of a timeline, in bounded memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rustc_hash::FxHashSet;

use super::{MemoryCounter, MemoryTimeline, ProcessTimeline, Steps};
use crate::model::{Comm, EventClass, ImageId};

/// Counter of an event class, or of all classes.
type Key = (Option<EventClass>, MemoryCounter);

/// Collects values at the ends of intervals. If there are too many moments, each two become one; if there are too many
/// processes, those with the smallest values are left out.
#[derive(Clone, Debug, Default)]
pub struct MemoryTimelineBuilder {
    /// The moments.
    ends: Vec<Duration>,
    /// Number of intervals up to a moment since the moment before; 0 for one.
    length: u32,
    /// Number of intervals up to the last moment.
    last_length: u32,
    total: BTreeMap<Key, Steps>,
    processes: BTreeMap<ImageId, Process>,
    /// Processes that are left out and run.
    small: FxHashSet<ImageId>,
    left_out: u64,
    marks: Vec<(Duration, String)>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    comm: Comm,
    counters: BTreeMap<Key, Steps>,
}

impl Process {
    /// Returns the greatest amount of live or resident memory.
    fn weight(&self) -> u64 {
        let of_class = |((_, counter), steps): (&Key, &Steps)| match counter {
            MemoryCounter::Allocated => 0,
            _ => steps.greatest().unwrap_or_default(),
        };
        self.counters.iter().map(of_class).max().unwrap_or_default()
    }
}

impl MemoryTimelineBuilder {
    /// Most moments.
    pub const MAX_MOMENTS: usize = 1024;

    /// Most processes.
    pub const MAX_PROCESSES: usize = 64;

    /// Most marks. Later ones are dropped.
    pub const MAX_MARKS: usize = 1000;

    /// Sets the name of a process.
    pub fn set_comm(&mut self, image: ImageId, comm: &Comm) {
        if let Some(process) = self.processes.get_mut(&image) {
            process.comm.clone_from(comm);
        }
    }

    /// Adds changes of the live and allocated bytes of a class in the current interval. Decreases wrap.
    pub fn add_change(&mut self, class: EventClass, image: ImageId, live: u64, allocated: u64) {
        let moment = self.moment();
        for (counter, change) in [(MemoryCounter::Live, live), (MemoryCounter::Allocated, allocated)] {
            let key = (Some(class), counter);
            self.total.entry(key).or_default().add(moment, change);
            if let Some(process) = self.process(image) {
                process.counters.entry(key).or_default().add(moment, change);
            }
        }
    }

    /// Sets a counter of a process at the end of the current interval.
    pub fn set(&mut self, image: ImageId, counter: MemoryCounter, value: u64) {
        let moment = self.moment();
        if let Some(process) = self.process(image) {
            process.counters.entry((None, counter)).or_default().set(moment, value);
        }
    }

    /// Ends a process: it has no resident memory from the end of the current interval on.
    pub fn end(&mut self, image: ImageId) {
        let moment = self.moment();
        self.small.remove(&image);
        for ((class, _), steps) in self.processes.get_mut(&image).into_iter().flat_map(|process| &mut process.counters)
        {
            if class.is_none() {
                steps.set(moment, 0);
            }
        }
    }

    /// Adds a mark.
    pub fn add_mark(&mut self, at: Duration, text: &str) {
        if self.marks.len() < Self::MAX_MARKS {
            self.marks.push((at, text.to_owned()));
        }
    }

    /// Ends the current interval.
    pub fn end_interval(&mut self, end: Duration) {
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
        if self.processes.len() > Self::MAX_PROCESSES {
            self.leave_out_small_processes();
        }
    }

    /// Returns the timeline of a class. Tracing lasted for `trace`, since the start of the clock.
    #[must_use]
    pub fn finish(&self, class: EventClass, trace: &Range<Duration>) -> MemoryTimeline {
        let since_start = |time: Duration| time.min(trace.end).saturating_sub(trace.start);
        // A run ends with intervals of almost no duration: they are one moment.
        let mut moments: Vec<Duration> = Vec::with_capacity(self.ends.len());
        let mut numbers = Vec::with_capacity(self.ends.len());
        for end in self.ends.iter().map(|&end| since_start(end)) {
            if moments.last() != Some(&end) {
                moments.push(end);
            }
            numbers.push(moments.len() - 1);
        }
        // Values of an interval that has not ended are those of the next moment.
        let number = |moment: usize| numbers.get(moment).copied().unwrap_or(moments.len());
        let of_class = |counters: &BTreeMap<Key, Steps>| -> BTreeMap<MemoryCounter, Steps> {
            let own = counters.iter().filter(|((of, _), _)| of.is_none_or(|of| of == class));
            let renumbered = own.map(|((_, counter), steps)| {
                let mut steps = steps.clone();
                steps.renumber(number);
                (*counter, steps)
            });
            renumbered.collect()
        };
        let process = |(&id, process): (&ImageId, &Process)| ProcessTimeline {
            id,
            comm: process.comm.clone(),
            counters: of_class(&process.counters),
        };
        let total = of_class(&self.total);
        let processes = self.processes.iter().map(process).filter(|process| !process.counters.is_empty()).collect();
        MemoryTimeline {
            moments,
            total,
            processes,
            left_out: self.left_out,
            marks: self.marks.iter().map(|(at, text)| (since_start(*at), text.clone())).collect(),
        }
    }

    /// Returns the number of the moment at which the current interval ends.
    fn moment(&self) -> usize {
        if self.last_length < self.length { self.ends.len() - 1 } else { self.ends.len() }
    }

    /// Returns a process; `None` if it is left out.
    fn process(&mut self, image: ImageId) -> Option<&mut Process> {
        (!self.small.contains(&image)).then(|| self.processes.entry(image).or_default())
    }

    /// Joins each two moments. Values are those at the second one.
    fn join_moments(&mut self) {
        self.ends = self.ends.chunks_exact(2).map(|pair| pair[1]).collect();
        let counters = self.processes.values_mut().map(|process| &mut process.counters).chain([&mut self.total]);
        for steps in counters.flat_map(BTreeMap::values_mut) {
            steps.renumber(|moment| moment / 2);
        }
        self.length = self.length.max(1).saturating_mul(2);
        self.last_length = self.length;
    }

    fn leave_out_small_processes(&mut self) {
        let mut by_weight: Vec<_> = self.processes.iter().map(|(&id, process)| (process.weight(), id)).collect();
        by_weight.sort_unstable();
        for &(_, id) in &by_weight[..by_weight.len() - Self::MAX_PROCESSES] {
            self.processes.remove(&id);
            self.small.insert(id);
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pid;

    const SECOND: Duration = Duration::from_secs(1);

    fn image(pid: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal: 0 }
    }

    fn timeline(builder: &MemoryTimelineBuilder, seconds: u32) -> MemoryTimeline {
        builder.finish(EventClass::Heap, &(SECOND..SECOND * seconds))
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
    }

    #[test]
    fn moments_are_bounded_and_exact() {
        let mut builder = MemoryTimelineBuilder::default();
        for number in 1..=20_000_u32 {
            builder.add_change(EventClass::Heap, image(1), 10, 10);
            builder.end_interval(SECOND * number);
            assert!(builder.ends.len() <= MemoryTimelineBuilder::MAX_MOMENTS);
        }
        let timeline = builder.finish(EventClass::Heap, &(Duration::ZERO..SECOND * 20_000));
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
}
