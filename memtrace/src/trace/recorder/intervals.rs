//! Grouping of the shards' deltas by interval.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_history::pipeline::WaitingStacks;
use memtrace_model::{Delta, Tick};

/// Deltas of intervals that were not taken yet.
#[derive(Debug)]
pub(super) struct OpenIntervals {
    interval: Duration,
    /// Sum of the deltas of each interval.
    open: BTreeMap<Slot, OpenInterval>,
    /// Interval of the latest delta of each shard.
    latest: Vec<Option<Slot>>,
    /// Number of marks that each shard has reached.
    marks: Vec<u64>,
    /// End of the last delta of each shard that was taken.
    taken: Vec<Tick>,
    /// Count of the stacks in deltas that were not taken.
    waiting: WaitingStacks,
}

/// Position of an interval: the number of marks before it, and its index since the start. An interval that ends at a
/// mark has the largest index, because it is the last interval before the mark.
type Slot = (u64, u128);

#[derive(Debug, Default)]
struct OpenInterval {
    sum: Delta,
    /// Shard, end and number of stacks of each delta.
    deltas: Vec<(usize, Tick, usize)>,
}

impl OpenIntervals {
    /// Returns an empty collection for `shards` shards. `waiting`: count of waiting stacks, which is lowered when
    /// deltas are taken.
    pub(super) fn new(interval: Duration, waiting: WaitingStacks, shards: usize) -> Self {
        Self {
            interval,
            open: BTreeMap::new(),
            latest: vec![None; shards],
            marks: vec![0; shards],
            taken: vec![Tick::default(); shards],
            waiting,
        }
    }

    /// Adds a delta. The deltas of a shard must come in order.
    pub(super) fn add(&mut self, shard: usize, delta: Delta) {
        let (Some(latest), Some(marks)) = (self.latest.get_mut(shard), self.marks.get_mut(shard)) else { return };
        let number = delta.until.since_start().as_nanos() / self.interval.as_nanos().max(1);
        let slot = (*marks, if delta.is_marked { u128::MAX } else { number });
        *marks += u64::from(delta.is_marked);
        *latest = (*latest).max(Some(slot));
        let open = self.open.entry(slot).or_default();
        open.deltas.push((shard, delta.until, delta.stack_count()));
        open.sum.merge(delta);
    }

    /// Removes and returns the earliest interval if all shards have completed it and it ended up to `settled`.
    pub(super) fn take_complete(&mut self, settled: Tick) -> Option<Delta> {
        let complete = self.latest.iter().min().copied().flatten()?;
        let entry =
            self.open.first_entry().filter(|entry| *entry.key() <= complete && entry.get().sum.until <= settled)?;
        let interval = entry.remove();
        Some(self.close(interval))
    }

    /// Removes and returns the earliest interval.
    pub(super) fn take_first(&mut self) -> Option<Delta> {
        let (_, interval) = self.open.pop_first()?;
        Some(self.close(interval))
    }

    /// Returns the time up to which the changes of all shards have been taken.
    pub(super) fn taken_until(&self) -> Tick {
        self.taken.iter().min().copied().unwrap_or_default()
    }

    fn close(&mut self, interval: OpenInterval) -> Delta {
        for (shard, end, stacks) in interval.deltas {
            self.waiting.release(shard, stacks);
            if let Some(taken) = self.taken.get_mut(shard) {
                *taken = end;
            }
        }
        interval.sum
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{
        Amount, Bytes, EventClass, ImageId, ImageUsage, LossReason, Pid, Quantities, Quantity, StackId,
    };

    use super::*;

    /// Returns a delta with `lost` losses. They identify the deltas in a sum.
    fn delta(until: u32, lost: u64) -> Delta {
        let mut delta = Delta { until: Tick(until), ..Delta::default() };
        delta.losses.add(LossReason::BadRecord, lost);
        delta
    }

    fn take(open: &mut OpenIntervals, settled: u32) -> Option<(u32, u64)> {
        open.take_complete(Tick(settled)).map(|delta| (delta.until.0, delta.losses.get(LossReason::BadRecord)))
    }

    #[test]
    fn interval_is_complete_with_the_deltas_of_all_shards() {
        let mut open = OpenIntervals::new(Tick(100).since_start(), WaitingStacks::new(2, 0), 2);
        open.add(0, delta(101, 1));
        open.add(0, delta(202, 2));
        assert_eq!(take(&mut open, 1000), None);
        open.add(1, delta(103, 4));
        assert_eq!(take(&mut open, 102), None, "mmap events up to the end may be missing");
        assert_eq!((take(&mut open, 1000), take(&mut open, 1000)), (Some((103, 5)), None));
        assert_eq!(open.taken_until(), Tick(101));
        // The second shard has skipped an interval.
        open.add(0, delta(301, 8));
        open.add(1, delta(304, 16));
        assert_eq!(take(&mut open, 1000), Some((202, 2)));
        assert_eq!(open.taken_until(), Tick(103), "the second shard has changes in the next interval");
        assert_eq!(take(&mut open, 1000), Some((304, 24)));
        assert_eq!(open.taken_until(), Tick(301));
        open.add(1, delta(350, 32));
        assert_eq!(open.take_first().map(|delta| delta.until), Some(Tick(350)));
    }

    #[test]
    fn stacks_wait_until_their_interval_is_taken() {
        let waiting = WaitingStacks::new(1, 2);
        let mut open = OpenIntervals::new(Tick(100).since_start(), waiting.clone(), 1);
        let id = ImageId { pid: Pid(1), ordinal: 0 };
        let usage = Quantities::ZERO.with_amount(Quantity::AllocBytes, Amount::one(Bytes(1)));
        let by_stack = (0..2).map(|stack| (StackId(stack).into(), usage));
        let mut changed = delta(101, 0);
        changed.add_usage(EventClass::Heap, id, ImageUsage { by_stack: by_stack.collect(), ..ImageUsage::default() });
        let stacks = changed.stack_count();
        assert_eq!(stacks, 2);
        assert!(waiting.request(0, stacks));
        open.add(0, changed);
        assert!(!waiting.request(0, 1));
        assert_eq!(take(&mut open, 1000), Some((101, 0)));
        assert!(waiting.request(0, 1));
    }

    #[test]
    fn intervals_end_at_marks() {
        let mut open = OpenIntervals::new(Tick(100).since_start(), WaitingStacks::new(2, 0), 2);
        let marked = |until, lost| Delta { is_marked: true, ..delta(until, lost) };
        // The first shard has ended its interval before the mark, and the second one after it.
        open.add(0, delta(101, 1));
        open.add(0, marked(101, 2));
        open.add(0, marked(130, 4));
        open.add(1, marked(99, 8));
        open.add(1, delta(100, 16));
        assert_eq!(take(&mut open, 1000), Some((101, 1)));
        assert_eq!(take(&mut open, 1000), Some((101, 10)));
        assert_eq!(take(&mut open, 1000), Some((100, 16)));
        assert_eq!(take(&mut open, 1000), None, "the second shard has not reached the second mark");
        open.add(1, marked(131, 32));
        open.add(0, delta(201, 64));
        assert_eq!(take(&mut open, 1000), Some((131, 36)));
        assert_eq!(take(&mut open, 1000), None);
        open.add(1, delta(200, 128));
        assert_eq!(take(&mut open, 1000), Some((201, 192)));
    }
}
