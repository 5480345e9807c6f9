//! Activity of consecutive intervals as that of one interval, and the limits of its size.

use std::collections::BTreeMap;

use super::slice_limit::SliceLimit;
use crate::model::{ActivityChanges, CallSums, LeftOut, Log2, Slice, SliceKind};

/// Most slices of an interval that waits: about 30 MB of memory.
pub(super) const MAX_WAITING_SLICES: usize = 1 << 18;

/// Most events of an interval that waits.
pub(super) const MAX_WAITING_EVENTS: usize = 1 << 18;

/// Returns the number of a kind in the database.
pub(super) fn kind_number(kind: SliceKind) -> i64 {
    (0..).zip(SliceKind::ALL).find(|(_, known)| *known == kind).map_or(0, |(number, _)| number)
}

/// Appends the activity of the next interval.
pub(super) fn append_changes(ours: &mut ActivityChanges, next: ActivityChanges) {
    let ActivityChanges { names, threads, locks, stacks, slices, events, totals, lock_totals } = next;
    ours.names.extend(names);
    ours.threads.extend(threads);
    ours.locks.extend(locks);
    ours.stacks.extend(stacks);
    ours.slices.extend(slices);
    ours.events.extend(events);
    add_all(&mut ours.totals, totals, |ours, sums| *ours += sums);
    add_all(&mut ours.lock_totals, lock_totals, |ours, sums| *ours += sums);
}

/// Adds the calls of the next interval.
pub(super) fn add_calls(ours: &mut BTreeMap<u32, CallSums>, next: BTreeMap<u32, CallSums>) {
    add_all(ours, next, |ours, CallSums { count, time, histogram }| {
        ours.count += count;
        ours.time.0 += time.0;
        let mut buckets: BTreeMap<Log2, u64> = ours.histogram.iter().copied().collect();
        add_all(&mut buckets, histogram, |ours, calls| *ours += calls);
        ours.histogram = buckets.into_iter().collect();
    });
}

/// Adds what was left out in the next interval.
pub(super) fn add_left_out(ours: &mut LeftOut, next: LeftOut) {
    ours.slices += next.slices;
    ours.shorter_than = ours.shorter_than.max(next.shorter_than);
    ours.events += next.events;
}

/// Removes the shortest slices if there are more than `most_slices`, and the last events if there are more than
/// `most_events`.
pub(super) fn bound(changes: &mut ActivityChanges, left_out: &mut LeftOut, most_slices: usize, most_events: usize) {
    let slices = changes.slices.len();
    if slices > most_slices {
        let mut limit = SliceLimit::new(most_slices as u64);
        limit.add(changes.slices.iter().map(Slice::duration));
        changes.slices.retain(|slice| limit.keeps(slice.duration()));
        let removed = slices.saturating_sub(changes.slices.len()) as u64;
        add_left_out(left_out, LeftOut { slices: removed, shorter_than: limit.shorter_than(), events: 0 });
    }
    left_out.events += changes.events.len().saturating_sub(most_events) as u64;
    changes.events.truncate(most_events);
}

fn add_all<K: Ord, V: Default>(
    ours: &mut BTreeMap<K, V>,
    next: impl IntoIterator<Item = (K, V)>,
    mut add: impl FnMut(&mut V, V),
) {
    next.into_iter().for_each(|(key, value)| add(ours.entry(key).or_default(), value));
}
