//! Changes of live memory in each interval of a run without a recording, for its trends.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::history::{Division, has_trends};
use crate::history::{Interval, TotalKey};
use crate::model::{LiveChanges, PartChange};

/// Entries until neighbours are merged.
const ENTRIES: usize = 32;

/// Changes of live memory over time. Each entry has the same number of intervals, which doubles when there are too many
/// entries. Stacks with little live memory are left out, so that memory is bounded.
#[derive(Debug)]
pub(super) struct LiveSeries {
    /// Ends of the entries.
    ends: Vec<Duration>,
    /// Number of intervals in an entry.
    length: u32,
    /// Number of intervals in the last entry.
    last_length: u32,
    by_stack: FxHashMap<TotalKey, LiveChanges>,
    max_stacks: usize,
}

impl LiveSeries {
    /// Returns an empty collection for `max_stacks` stacks.
    pub(super) fn new(max_stacks: usize) -> Self {
        Self { ends: Vec::new(), length: 1, last_length: 1, by_stack: FxHashMap::default(), max_stacks }
    }

    /// Adds the changes of an interval.
    pub(super) fn add(&mut self, interval: &Interval) {
        self.extend_to(interval.span.end);
        let number = self.ends.len();
        for change in interval.changes.iter().filter(|change| has_trends(change.key.class)) {
            if self.by_stack.len() >= self.max_stacks && !self.by_stack.contains_key(&change.key) {
                self.remove_small();
            }
            let usage = &change.usage;
            let change_of_part = PartChange { live: usage.live().bytes.0.cast_signed(), alloc: usage.alloc().bytes.0 };
            self.by_stack.entry(change.key).or_default().add(number - 1, number, change_of_part);
        }
        if !interval.finished.is_empty() {
            let finished: HashSet<_> = interval.finished.iter().copied().collect();
            self.by_stack.retain(|key, _| !finished.contains(&key.image));
        }
    }

    /// Adds an interval to the last entry, or to a new one.
    fn extend_to(&mut self, end: Duration) {
        if self.last_length < self.length
            && let Some(last) = self.ends.last_mut()
        {
            *last = end;
            self.last_length += 1;
            return;
        }
        if self.ends.len() == ENTRIES {
            let mut number = 0;
            self.ends.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.by_stack.values_mut().for_each(LiveChanges::merge_pairs);
            self.length = self.length.saturating_mul(2);
        }
        self.ends.push(end);
        self.last_length = 1;
    }

    /// Removes half of the stacks: those with the least live memory.
    fn remove_small(&mut self) {
        let live = |(&key, changes): (&TotalKey, &LiveChanges)| (changes.total().live, key);
        let mut stacks: Vec<_> = self.by_stack.iter().map(live).collect();
        stacks.sort_unstable();
        stacks.truncate(stacks.len().div_ceil(2));
        for (_, key) in stacks {
            self.by_stack.remove(&key);
        }
    }

    /// Returns the parts of a trace, since its start, and the changes in them. A stack that was left out for some time has
    /// only the changes since then.
    pub(super) fn in_parts(&self, trace: &Range<Duration>) -> (Vec<Range<Duration>>, FxHashMap<TotalKey, LiveChanges>) {
        let Division { ends, times } = Division::of(&self.ends, trace);
        let part_of = |entry: usize| ends.partition_point(|end| *end < entry);
        let in_parts = |changes: &LiveChanges| {
            let mut sums = LiveChanges::default();
            for (entry, change) in changes.as_slice().iter().enumerate() {
                sums.add(part_of(entry), ends.len(), *change);
            }
            sums
        };
        let changes = self.by_stack.iter().filter(|_| !ends.is_empty());
        let changes = changes.map(|(&key, changes)| (key, in_parts(changes))).collect();
        (times, changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Change, PathNumber};
    use crate::model::{Amount, Bytes, EventClass, ImageId, Part, Pid, Quantities, Quantity, StackEnd};

    const SECOND: Duration = Duration::from_secs(1);

    fn key(path: u32) -> TotalKey {
        TotalKey {
            image: ImageId { pid: Pid(path), ordinal: 0 },
            class: EventClass::Heap,
            path: PathNumber(path),
            end: StackEnd::Complete,
            part: Part::WHOLE,
        }
    }

    fn second(number: u32, changes: &[(u32, i64)]) -> Interval {
        let change = |&(path, bytes): &(u32, i64)| {
            let live = Amount { bytes: Bytes(bytes.cast_unsigned()), count: 0 };
            let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, live).with_amount(Quantity::AllocBytes, live);
            Change { key: key(path), usage }
        };
        let changes = changes.iter().map(change).collect();
        Interval { span: SECOND * number..SECOND * (number + 1), changes, ..Interval::default() }
    }

    fn live(changes: &LiveChanges) -> Vec<i64> {
        changes.as_slice().iter().map(|part| part.live).collect()
    }

    #[test]
    fn neighbours_are_merged() {
        let mut series = LiveSeries::new(10);
        for number in 0..5000 {
            let single = if number == 70 { 1000 } else { 0 };
            series.add(&second(number, &[(1, 10), (2, single)]));
            assert!(series.ends.len() <= ENTRIES);
            let passed = number + 1;
            if passed < 71 {
                continue;
            }
            let (parts, changes) = series.in_parts(&(Duration::ZERO..SECOND * passed));
            assert!((8..=16).contains(&parts.len()), "{parts:?}");
            assert_eq!((parts[0].start, parts.last().unwrap().end), (Duration::ZERO, SECOND * passed));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
            let of_time = |part: &Range<Duration>| (part.end - part.start).as_secs().cast_signed() * 10;
            assert_eq!(live(&changes[&key(1)]), parts.iter().map(of_time).collect::<Vec<_>>());
            let has_single = |part: &Range<Duration>| i64::from(part.contains(&(SECOND * 70))) * 1000;
            assert_eq!(live(&changes[&key(2)]), parts.iter().map(has_single).collect::<Vec<_>>());
        }
    }

    #[test]
    fn stacks_with_the_most_live_memory_are_kept() {
        let mut series = LiveSeries::new(4);
        for number in 0..8 {
            series.add(&second(number, &[(1, 100), (2, 90), (10 + number, 1)]));
            assert!(series.by_stack.len() <= 4);
        }
        let (parts, changes) = series.in_parts(&(Duration::ZERO..SECOND * 8));
        assert_eq!(parts.len(), 8);
        assert_eq!([live(&changes[&key(1)]), live(&changes[&key(2)])], [vec![100; 8], vec![90; 8]]);
    }

    #[test]
    fn ended_images_are_forgotten() {
        let mut series = LiveSeries::new(4);
        for number in 0..8 {
            let finished = if number == 5 { vec![key(1).image] } else { Vec::new() };
            series.add(&Interval { finished, ..second(number, &[(2, 1)]) });
            if number == 4 {
                series.add(&second(number, &[(1, 100)]));
            }
        }
        let (_, changes) = series.in_parts(&(Duration::ZERO..SECOND * 8));
        assert_eq!(changes.keys().collect::<Vec<_>>(), [&key(2)]);
    }
}
