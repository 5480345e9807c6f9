//! Probes on their way out.
//!
//! Closing the last descriptor of a probe returns when the kernel has taken it away, which means waiting until nobody can
//! be in it any more. Such waits can overlap, so several threads close descriptors. The removals of perf events do not:
//! `perf_uprobe_destroy` (kernel/trace/trace_event_perf.c) waits with a mutex held.

mod reaper;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads that remove probes. With so many, 17 probes in 8 links took 0.06 s, with one thread 0.4 s; more did no better.
const THREADS: usize = 8;

/// What keeps probes in place until it is dropped.
pub(super) struct Held {
    count: usize,
    /// Whether removing it can overlap with removing others.
    overlaps: bool,
    _link: Box<dyn Send>,
}

impl Held {
    /// A link that keeps as many probes in place as `count` says.
    pub(super) fn together(link: impl Send + 'static, count: usize) -> Self {
        Self { count, overlaps: true, _link: Box::new(link) }
    }

    /// A link that keeps one probe in place, by a perf event.
    pub(super) fn alone(link: impl Send + 'static) -> Self {
        Self { count: 1, overlaps: false, _link: Box::new(link) }
    }

    /// How many probes.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Probes that are being removed. Dropping this waits for them.
pub struct Detaching {
    total: usize,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Vec<Held>>,
    removed: AtomicUsize,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    fn work(&self) {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(held) = next else { return };
            let count = held.count();
            drop(held);
            self.removed.fetch_add(count, Ordering::Release);
            (self.tell)();
        }
    }
}

impl Detaching {
    /// Begins to remove what is held, in the background, and calls `tell` whenever some of it is gone.
    pub(super) fn begin(held: Vec<Held>, tell: impl Fn() + Send + Sync + 'static) -> Self {
        let total = held.iter().map(Held::count).sum();
        let overlapping = held.iter().filter(|held| held.overlaps).count();
        let wanted = overlapping.clamp(usize::from(!held.is_empty()), THREADS);
        let (waiting, removed) = (Mutex::new(held), AtomicUsize::new(0));
        let shared = Arc::new(Shared { waiting, removed, tell: Box::new(tell) });
        let worker = || {
            let shared = shared.clone();
            Builder::new().name(String::from("detach")).spawn(move || shared.work())
        };
        let threads: Vec<_> = (0..wanted).filter_map(|_| worker().ok()).collect();
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
        self.shared.removed.load(Ordering::Acquire)
    }

    /// Whether all are gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.removed() == self.total
    }

    /// Leaves the rest to a process of its own, which ends after this one and takes the probes with it. The kernel does not
    /// let a process end before it has removed what that process was the last to hold, and so nobody who waits for this
    /// process has to wait for that.
    ///
    /// # Errors
    ///
    /// What the system said where there can be no such process; then this has waited for the probes.
    pub fn bequeath(self) -> io::Result<()> {
        // What the threads close from now on is held elsewhere too, and is closed at once.
        reaper::start()
    }
}

impl Drop for Detaching {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // Nothing in there panics.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A link that says when its removal begins, and takes until it is told.
    struct Slow {
        begun: Sender<usize>,
        name: usize,
        go: Receiver<()>,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            self.begun.send(self.name).unwrap();
            self.go.recv().unwrap();
        }
    }

    fn slow(begun: &Sender<usize>, name: usize) -> (Slow, Sender<()>) {
        let (let_go, go) = channel();
        (Slow { begun: begun.clone(), name, go }, let_go)
    }

    #[test]
    fn links_of_many_probes_are_removed_at_the_same_time_and_counted_by_their_probes() {
        let (begun, beginnings) = channel();
        let (told, tellings) = channel();
        let (links, let_go): (Vec<_>, Vec<_>) = (0..3).map(|name| slow(&begun, name)).unzip();
        let held = links.into_iter().zip([10, 20, 30]).map(|(link, count)| Held::together(link, count)).collect();
        let detaching = Detaching::begin(held, move || told.send(()).unwrap());
        let mut all: Vec<_> = beginnings.iter().take(3).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert_eq!((detaching.removed(), detaching.total(), detaching.is_over()), (0, 60, false));
        for (go, removed) in let_go.iter().zip([10, 30, 60]) {
            go.send(()).unwrap();
            tellings.recv().unwrap();
            assert_eq!(detaching.removed(), removed);
        }
        assert!(detaching.is_over());
    }

    #[test]
    fn perf_events_are_removed_one_after_the_other() {
        let (begun, beginnings) = channel();
        let (links, let_go): (Vec<_>, Vec<_>) = (0..3).map(|name| slow(&begun, name)).unzip();
        let detaching = Detaching::begin(links.into_iter().map(Held::alone).collect(), || {});
        for _ in 0..3 {
            let name = beginnings.recv().unwrap();
            assert!(beginnings.try_recv().is_err(), "one at a time");
            let_go[name].send(()).unwrap();
        }
        drop(detaching);
        assert!(beginnings.try_recv().is_err());
    }

    #[test]
    fn to_remove_nothing_is_over_at_once() {
        assert!(Detaching::begin(Vec::new(), || {}).is_over());
    }
}
