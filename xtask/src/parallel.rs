//! Work on several threads.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Returns the number of processors.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Applies `work` to the items on `threads` threads. An idle thread takes the next item. `work` also gets the index of
/// the thread that runs it. Returns the results in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(items.iter().enumerate());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..threads.min(items.len()) {
            let (next, done, work) = (&next, &done, &work);
            scope.spawn(move || {
                loop {
                    // A lock is poisoned only after a panic of another thread, which the scope reports.
                    let Some((index, item)) = lock(next).next() else { return };
                    let result = work(number, item);
                    lock(done).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        assert_eq!(map(3, &items, |_, item| item * 2), (0..100).step_by(2).collect::<Vec<_>>());
        assert_eq!(map(3, &[0; 0], |_, item: &u64| *item), [0; 0]);
    }

    #[test]
    fn threads_have_different_numbers() {
        let barrier = Barrier::new(2);
        let mut numbers = map(2, &[(), ()], |number, ()| {
            barrier.wait();
            number
        });
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1]);
    }
}
