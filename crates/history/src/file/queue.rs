//! Bounded queue of intervals that wait for the writer. If it is full, intervals are merged and nothing is dropped.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::interval::Interval;

/// Maximum number of intervals beyond the capacity. Up to this number, intervals that end in a mark are not merged with
/// the next one. Beyond it, they are merged too, and their marks become inexact.
const MAX_MARKED: usize = 1024;

/// A bounded queue of intervals.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    capacity: usize,
    /// Maximum number of rows of all waiting intervals. If there are more, two intervals are merged.
    max_rows: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Interval>,
    /// True while the interval that was taken last is being stored.
    is_storing: bool,
    is_settled: bool,
    is_closed: bool,
    merged: u64,
}

impl Queue {
    /// Returns an empty queue for `capacity` intervals and about `max_rows` rows. A single interval can have more
    /// rows.
    pub(super) fn new(capacity: usize, max_rows: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), capacity: capacity.max(1), max_rows }
    }

    /// Appends an interval. If the queue has too many intervals or rows, two neighbours are merged.
    pub(super) fn push(&self, interval: Interval) {
        let mut state = self.lock();
        state.waiting.push_back(interval);
        if (state.waiting.len() > self.capacity || state.waiting.len() > 1 && state.rows() > self.max_rows)
            && let Some(index) = state.cheapest_merge(self.capacity)
            && let Some(next) = state.waiting.remove(index + 1)
        {
            state.waiting[index].merge(next);
            state.merged += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for an interval, and takes the oldest. The call reports that the writer has processed the previous
    /// interval. Returns `None` if the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<Interval> {
        let is_waiting = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
        let mut state = self.lock();
        state.is_storing = false;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, is_waiting).unwrap_or_else(PoisonError::into_inner);
        let interval = state.waiting.pop_front();
        state.is_storing = interval.is_some();
        interval
    }

    /// Waits until the writer has processed all intervals. From now on, old intervals are merged only if a new one
    /// does not fit into the file.
    pub(super) fn settle(&self) {
        let is_storing = |state: &mut State| state.is_storing || !state.waiting.is_empty();
        let mut state = self.lock();
        state.is_settled = true;
        drop(self.changed.wait_while(state, is_storing).unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns true after [`Self::settle`].
    pub(super) fn is_settled(&self) -> bool {
        self.lock().is_settled
    }

    /// Closes the queue: no further interval is pushed.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Returns true if no interval waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Returns the number of intervals that were merged into others.
    pub(super) fn merged(&self) -> u64 {
        self.lock().merged
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock has a consistent state: nothing panics while the state changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the number of rows of all waiting intervals.
    fn rows(&self) -> usize {
        self.waiting.iter().map(Interval::rows).sum()
    }

    /// Returns the index of the interval that has the fewest rows together with the next one. An interval that ends in
    /// a mark is not merged with the next one, unless too many intervals wait.
    fn cheapest_merge(&self, capacity: usize) -> Option<usize> {
        let cost = |index: &usize| self.waiting[*index].rows() + self.waiting[*index + 1].rows();
        let pairs = 0..self.waiting.len() - 1;
        let unmarked = pairs.clone().filter(|&index| self.waiting[index].mark().is_none()).min_by_key(cost);
        let is_over = self.waiting.len() > capacity + MAX_MARKED;
        unmarked.or_else(|| is_over.then(|| pairs.min_by_key(cost)).flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::{EventClass, ImageId, Pid};

    use super::*;
    use crate::{ImageChange, ImageValue, Mark};

    fn interval(second: u64) -> Interval {
        let at = Duration::from_secs;
        Interval { span: at(second)..at(second + 1), ..Interval::default() }
    }

    fn marked(second: u64) -> Interval {
        let at = Duration::from_secs(second + 1);
        let mark = Mark { at, text: second.to_string(), epoch: second as u32 };
        Interval { marks: vec![mark], ..interval(second) }
    }

    fn spans(queue: &Queue) -> Vec<(u64, u64)> {
        queue.close();
        let all = std::iter::from_fn(|| queue.pop());
        all.map(|interval| (interval.span.start.as_secs(), interval.span.end.as_secs())).collect()
    }

    #[test]
    fn full_queue_merges_neighbours() {
        let queue = Queue::new(3, usize::MAX);
        (0..10).for_each(|second| queue.push(interval(second)));
        assert_eq!(queue.merged(), 7);
        let spans = spans(&queue);
        assert_eq!((spans.len(), spans[0].0, spans[2].1), (3, 0, 10));
        assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "{spans:?}");
    }

    #[test]
    fn queue_with_too_many_rows_merges_neighbours() {
        let queue = Queue::new(10, 2);
        let with_row = |second| Interval {
            image_changes: vec![ImageChange {
                image: ImageId { pid: Pid(1), ordinal: 0 },
                class: EventClass::Heap,
                kind: ImageValue::UnmatchedFrees,
                index: 0,
                value: 1,
            }],
            ..interval(second)
        };
        (0..4).for_each(|second| queue.push(with_row(second)));
        assert_eq!(spans(&queue), [(0, 3), (3, 4)]);
    }

    #[test]
    fn boundaries_at_marks_are_kept() {
        let queue = Queue::new(2, usize::MAX);
        queue.push(interval(0));
        queue.push(marked(1));
        (2..5).for_each(|second| queue.push(interval(second)));
        queue.push(marked(5));
        queue.push(marked(6));
        assert_eq!(spans(&queue), [(0, 2), (2, 6), (6, 7)]);
        assert_eq!(queue.merged(), 4);
    }

    #[test]
    fn number_of_waiting_marks_is_bounded() {
        let queue = Queue::new(2, usize::MAX);
        (0..2 * MAX_MARKED as u64).for_each(|second| queue.push(marked(second)));
        assert_eq!(spans(&queue).len(), 2 + MAX_MARKED);
    }
}
