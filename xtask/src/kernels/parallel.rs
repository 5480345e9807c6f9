//! Guests beside one another: each has one processor, and mostly waits for nothing else.

use std::sync::Mutex;
use std::thread;

/// Does `work` with each of `items`, with as many at a time as there are processors; the results are in the items' order.
pub(super) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let at_a_time = thread::available_parallelism().map_or(1, usize::from);
    let next = Mutex::new(items.iter().enumerate());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_a_time.min(items.len()) {
            scope.spawn(|| {
                loop {
                    // Whoever panics with the lock has been told of already.
                    let Some((index, item)) = lock(&next).next() else { return };
                    let result = work(item);
                    lock(&done).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        assert_eq!(each(&items, |item| item * 2), (0..100).step_by(2).collect::<Vec<_>>());
        assert_eq!(each(&[0; 0], |item: &u64| *item), [0; 0]);
    }
}
