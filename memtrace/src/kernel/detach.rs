//! Probes on their way out.
//!
//! Closing the last descriptor of a probe returns when the kernel has taken it away, which means waiting until nobody can
//! be in it any more. Such waits can overlap, so several threads close descriptors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads that remove probes.
const THREADS: usize = 8;

/// What keeps probes in place until it is dropped.
pub(super) struct Held {
    count: usize,
    _link: Box<dyn Send>,
}

impl Held {
    /// A link that keeps so many probes in place.
    pub(super) fn new(link: impl Send + 'static, count: usize) -> Self {
        Self { count, _link: Box::new(link) }
    }

    /// How many probes.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Probes that are being removed. Dropping this does not wait for them; the process' end does.
pub struct Detaching {
    total: usize,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Vec<Held>>,
    removed: AtomicUsize,
}

impl Shared {
    fn work(&self) {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(held) = next else { return };
            let count = held.count();
            drop(held);
            self.removed.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl Detaching {
    pub(super) fn begin(held: Vec<Held>) -> Self {
        let total = held.iter().map(Held::count).sum();
        let wanted = held.len().min(THREADS);
        let shared = Arc::new(Shared { waiting: Mutex::new(held), removed: AtomicUsize::new(0) });
        let worker = |_| {
            let shared = shared.clone();
            Builder::new().name(String::from("detach")).spawn(move || shared.work())
        };
        let threads: Vec<_> = (0..wanted).filter_map(|index| worker(index).ok()).collect();
        if threads.is_empty() {
            shared.work();
        }
        Self { total, shared, threads }
    }

    /// How many probes there were.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// How many are gone.
    #[must_use]
    pub fn removed(&self) -> usize {
        self.shared.removed.load(Ordering::Relaxed)
    }

    /// Whether all are gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.removed() == self.total
    }

    /// Waits until all are gone.
    pub fn wait(self) {
        for thread in self.threads {
            // Nothing in there panics.
            let _ = thread.join();
        }
    }
}
