//! New activity in an interval.

use std::collections::BTreeMap;

use crate::{AbsAddr, Nanoseconds, Pid, StackId};

use super::{ActiveThread, ActivityEvent, LockSums, Span, SpanKind, SpanSums};

/// Activity in an interval. Threads, locks, names and stacks have ids that stay the same during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityChanges {
    /// New names, each with its id.
    pub names: Vec<(u32, String)>,
    /// New and changed threads, by id.
    pub threads: BTreeMap<u32, ActiveThread>,
    /// New and changed locks, each with its id.
    pub locks: Vec<(u32, LockIdentity)>,
    /// New stacks of waits: the id in [`Span::stack`], the process, and the id of the call stack.
    pub stacks: Vec<(u32, Pid, StackId)>,
    /// Spans that have ended, and spans that are open at the end of the trace. The spans of a thread are in the order of
    /// their ends. A span whose end was lost may have ended before the interval. It belongs to the interval that shows the
    /// loss.
    pub spans: Vec<Span>,
    /// New events.
    pub events: Vec<ActivityEvent>,
    /// Increases of the totals of spans, by kind and id of the name. `longest` is the longest duration in the
    /// interval.
    pub totals: BTreeMap<(SpanKind, u32), SpanSums>,
    /// Increases of the totals of locks, by id. `longest_wait`, `longest_hold` and `most_waiters` are the maxima of the
    /// interval.
    pub lock_totals: BTreeMap<u32, LockSums>,
}

impl ActivityChanges {
    /// Returns true if there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds spans to the totals of spans and locks. A span that is open at the end of the trace is added to the totals
    /// of its lock only. So the waits of a deadlock are counted.
    pub fn count(&mut self, spans: &[Span]) {
        for span in spans {
            let time = span.duration();
            let sums = SpanSums {
                count: 1,
                time,
                longest: time,
                cpu: span.cpu.unwrap_or(Nanoseconds(0)),
                allocated: span.allocated.map_or(0, |bytes| bytes.0),
                lost_ends: span.is_end_lost.into(),
                missing: 0,
            };
            if !span.is_open {
                *self.totals.entry((span.kind, span.name)).or_default() += sums;
            }
            if let Some(lock) = span.lock {
                let none = LockSums::default();
                let sums = match span.kind {
                    SpanKind::LockHold => LockSums { holds: 1, hold_time: time, longest_hold: time, ..none },
                    _ => LockSums { waits: 1, wait_time: time, longest_wait: time, ..none },
                };
                *self.lock_totals.entry(lock).or_default() += sums;
            }
        }
    }

    /// Removes and returns the spans that end after `at`, with their totals, and the events after `at`. Names,
    /// threads, locks and stacks stay in `self`.
    #[must_use]
    pub fn split_off(&mut self, at: Nanoseconds) -> Self {
        let spans: Vec<_> = self.spans.extract_if(.., |span| span.end > at).collect();
        let events = self.events.extract_if(.., |event| event.at > at).collect();
        let mut later = Self { events, ..Self::default() };
        if !spans.is_empty() {
            later.count(&spans);
            let before = std::mem::take(&mut self.lock_totals);
            let kept = std::mem::take(&mut self.spans);
            let totals_before = std::mem::take(&mut self.totals);
            self.count(&kept);
            self.spans = kept;
            for (key, SpanSums { missing, .. }) in totals_before.into_iter().filter(|(_, sums)| sums.missing > 0) {
                *self.totals.entry(key).or_default() += SpanSums { missing, ..SpanSums::default() };
            }
            for (lock, sums) in before {
                let most_waiters = sums.most_waiters;
                *self.lock_totals.entry(lock).or_default() += LockSums { most_waiters, ..LockSums::default() };
            }
        }
        later.spans = spans;
        later
    }

    /// Adds later changes.
    pub fn append(&mut self, later: Self) {
        let Self { names, threads, locks, stacks, spans, events, totals, lock_totals } = later;
        self.names.extend(names);
        self.threads.extend(threads);
        self.locks.extend(locks);
        self.stacks.extend(stacks);
        self.spans.extend(spans);
        self.events.extend(events);
        for (key, sums) in totals {
            *self.totals.entry(key).or_default() += sums;
        }
        for (lock, sums) in lock_totals {
            *self.lock_totals.entry(lock).or_default() += sums;
        }
    }
}

/// Identity of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockIdentity {
    /// Process of the lock.
    pub pid: Pid,
    /// Address of the lock or futex.
    pub address: AbsAddr,
    /// Id of the lock's name; `None` for a futex.
    pub name: Option<u32>,
    /// Id of the name of the variable that contains a futex; `None` if it is not known.
    pub place: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Log2;

    #[test]
    fn parts_have_the_totals_of_the_whole() {
        let span = |begin, end, kind, lock| Span {
            begin: Nanoseconds(begin),
            end: Nanoseconds(end),
            kind,
            lock,
            ..Span::default()
        };
        let spans = vec![
            span(0, 10, SpanKind::Task, None),
            span(5, 30, SpanKind::LockWait, Some(1)),
            span(7, 20, SpanKind::LockHold, Some(1)),
            Span { is_open: true, ..span(9, 40, SpanKind::Task, None) },
        ];
        let mut whole = ActivityChanges::default();
        whole.count(&spans);
        whole.spans = spans;
        for (kind, missing) in [(SpanKind::Task, 3), (SpanKind::Stall, 4)] {
            *whole.totals.entry((kind, 0)).or_default() += SpanSums { missing, ..SpanSums::default() };
        }
        let mut first = whole.clone();
        let second = first.split_off(Nanoseconds(20));
        assert_eq!((first.spans.len(), second.spans.len()), (2, 2));
        assert_eq!(first.lock_totals[&1].hold_time, Nanoseconds(13));
        let mut sum = first;
        sum.append(second);
        assert_eq!((sum.totals, sum.lock_totals), (whole.totals, whole.lock_totals));
    }

    #[test]
    fn calls_since_earlier_ones_add_up() {
        let log2 = |number| Log2::from_number(number).unwrap();
        let sums = |count, time, histogram| crate::CallSums { count, time: Nanoseconds(time), histogram };
        let earlier = sums(3, 30, vec![(log2(3), 2), (log2(5), 1)]);
        let later = sums(6, 70, vec![(log2(3), 2), (log2(4), 1), (log2(5), 3)]);
        let mut sum = later.since(&earlier);
        assert_eq!(sum, sums(3, 40, vec![(log2(4), 1), (log2(5), 2)]));
        sum += &earlier;
        assert_eq!(sum, later);
    }
}
