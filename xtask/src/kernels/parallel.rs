//! Runs guests in parallel: each has one processor.

use std::sync::Mutex;
use std::thread;

/// Applies `work` to the items on one thread per processor, and returns the results in the items' order.
pub(super) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = Mutex::new(items.iter().enumerate());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                loop {
                    // A poisoned lock comes from a panic that is reported already.
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
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        assert_eq!(map(&items, |item| item * 2), (0..100).step_by(2).collect::<Vec<_>>());
        assert_eq!(map(&[0; 0], |item: &u64| *item), [0; 0]);
    }
}
