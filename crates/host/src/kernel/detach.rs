//! Removal of probes in the background.
//!
//! The close(2) of the last descriptor of a probe returns after the kernel has removed the probe. This includes a wait
//! until no task executes the probe. The waits of uprobe_multi links can overlap, so several threads close descriptors.
//! The waits of perf events cannot overlap: `perf_uprobe_destroy` (kernel/trace/trace_event_perf.c) holds a mutex.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Maximum number of threads that remove probes. The removal of 17 probes in 8 links takes 0.06 s with 8 threads, and
/// 0.4 s with one. More threads do not help.
const THREADS: usize = 8;

/// Interval at which the reaper checks if memtrace has exited.
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Number of standard streams.
const STREAMS: libc::c_int = 3;

/// Link that keeps probes attached until it is dropped.
pub(super) struct AttachedProbes {
    count: usize,
    /// True if the removal can overlap with the removal of other links.
    overlaps: bool,
    _link: Box<dyn Send>,
}

impl AttachedProbes {
    /// Takes a uprobe_multi link with `count` probes.
    pub(super) fn by_multi_link(link: impl Send + 'static, count: usize) -> Self {
        Self { count, overlaps: true, _link: Box::new(link) }
    }

    /// Takes a perf event, which has one probe.
    pub(super) fn by_perf_event(link: impl Send + 'static) -> Self {
        Self { count: 1, overlaps: false, _link: Box::new(link) }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Removal of probes in progress. Dropping this value waits until all probes are removed.
pub struct Detach {
    total: usize,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Vec<AttachedProbes>>,
    removed: AtomicUsize,
    on_progress: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    fn remove_all(&self) {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(probes) = next else { return };
            let count = probes.count();
            drop(probes);
            self.removed.fetch_add(count, Ordering::Release);
            (self.on_progress)();
        }
    }
}

impl Detach {
    /// Starts to remove `probes` in the background. Calls `on_progress` after the removal of each link.
    pub(super) fn start(probes: Vec<AttachedProbes>, on_progress: impl Fn() + Send + Sync + 'static) -> Self {
        let total = probes.iter().map(AttachedProbes::count).sum();
        let overlapping = probes.iter().filter(|link| link.overlaps).count();
        let threads = overlapping.clamp(usize::from(!probes.is_empty()), THREADS);
        let (waiting, removed) = (Mutex::new(probes), AtomicUsize::new(0));
        let shared = Arc::new(Shared { waiting, removed, on_progress: Box::new(on_progress) });
        let worker = || {
            let shared = shared.clone();
            Builder::new().name(String::from("detach")).spawn(move || shared.remove_all())
        };
        let threads: Vec<_> = (0..threads).filter_map(|_| worker().ok()).collect();
        if threads.is_empty() {
            shared.remove_all();
        }
        Self { total, shared, threads }
    }

    /// Returns the number of probes to remove, including the ones that are removed.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of removed probes.
    #[must_use]
    pub fn removed(&self) -> usize {
        self.shared.removed.load(Ordering::Acquire)
    }

    /// Returns true if all probes are removed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.removed() == self.total
    }

    /// Hands the remaining probes over to a reaper process, which exits after memtrace.
    ///
    /// A process with the last descriptor of a probe exits only after the kernel has removed the probe. The reaper
    /// closes its descriptors after memtrace, so a process that waits for memtrace does not wait for the removal.
    ///
    /// # Errors
    ///
    /// Errors of fork(2). In this case, the call waits until all probes are removed.
    pub fn hand_over(self) -> io::Result<()> {
        // The reaper holds all descriptors from here on, so the threads close theirs without delay.
        start_reaper()
    }
}

impl Drop for Detach {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // The threads do not panic.
            let _ = thread.join();
        }
    }
}

/// Starts the reaper: a child process that inherits all descriptors of memtrace and exits after it. The reaper closes its standard streams, so that the reader of a pipe does not wait for its exit.
fn start_reaper() -> io::Result<()> {
    // SAFETY: the call has no conditions.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child has only this thread, makes only async-signal-safe calls (signal-safety(7)), and does not
    // return from `wait_for`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => wait_for(parent),
        _ => Ok(()),
    }
}

fn wait_for(parent: libc::pid_t) -> ! {
    // Signals of the terminal do not reach a process in another session.
    // SAFETY: the call has no conditions.
    unsafe { libc::setsid() };
    for stream in 0..STREAMS {
        // SAFETY: nothing in this process uses the streams.
        unsafe { libc::close(stream) };
    }
    // The result of getppid(2) changes after the parent has closed its descriptors (`do_exit`, kernel/exit.c).
    // SAFETY: the call has no conditions.
    while unsafe { libc::getppid() } == parent {
        // SAFETY: the time is a constant, and the call writes no memory.
        unsafe { libc::nanosleep(&raw const PAUSE, ptr::null_mut()) };
    }
    // SAFETY: the call has no conditions.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Link that reports the start of its removal and waits for permission to finish.
    struct Slow {
        started: Sender<usize>,
        name: usize,
        go: Receiver<()>,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            self.started.send(self.name).unwrap();
            self.go.recv().unwrap();
        }
    }

    fn slow(started: &Sender<usize>, name: usize) -> (Slow, Sender<()>) {
        let (permit, go) = channel();
        (Slow { started: started.clone(), name, go }, permit)
    }

    #[test]
    fn links_are_removed_in_parallel_and_counted_by_probe() {
        let (started, starts) = channel();
        let (reported, progress) = channel();
        let (links, permits): (Vec<_>, Vec<_>) = (0..3).map(|name| slow(&started, name)).unzip();
        let probes = links
            .into_iter()
            .zip([10, 20, 30])
            .map(|(link, count)| AttachedProbes::by_multi_link(link, count))
            .collect();
        let detach = Detach::start(probes, move || reported.send(()).unwrap());
        let mut all: Vec<_> = starts.iter().take(3).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert_eq!((detach.removed(), detach.total(), detach.is_complete()), (0, 60, false));
        for (go, removed) in permits.iter().zip([10, 30, 60]) {
            go.send(()).unwrap();
            progress.recv().unwrap();
            assert_eq!(detach.removed(), removed);
        }
        assert!(detach.is_complete());
    }

    #[test]
    fn perf_events_are_removed_one_at_a_time() {
        let (started, starts) = channel();
        let (links, permits): (Vec<_>, Vec<_>) = (0..3).map(|name| slow(&started, name)).unzip();
        let detach = Detach::start(links.into_iter().map(AttachedProbes::by_perf_event).collect(), || {});
        for _ in 0..3 {
            let name = starts.recv().unwrap();
            assert!(starts.try_recv().is_err(), "one at a time");
            permits[name].send(()).unwrap();
        }
        drop(detach);
        assert!(starts.try_recv().is_err());
    }

    #[test]
    fn removing_no_probes_is_complete_at_once() {
        assert!(Detach::start(Vec::new(), || {}).is_complete());
    }
}
