//! Removal of probes in the background.
//!
//! The close(2) of the last descriptor of a probe returns after the kernel has removed the probe. This includes a wait
//! until no task executes the probe. The waits of uprobe_multi links can overlap, so several threads close descriptors.
//! The waits of perf events cannot overlap: `perf_uprobe_destroy` (kernel/trace/trace_event_perf.c) holds a mutex.
//!
//! While a process holds the lock of its memory map, no descriptor is closed: the close would wait for the lock, and every fork
//! would wait for the close (`MemoryLocks`). A reaper process waits in place of memtrace if the lock is not released.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::lock_holder::LockHolder;
use super::memory_locks::MemoryLocks;

/// Maximum number of threads that remove probes. The removal of 17 probes in 8 links takes 0.06 s with 8 threads, and 0.4 s with
/// one. A traced command has up to 97 links, with probes in the allocators that it could load: the command takes 0.81 of the time
/// with 32 threads, and no less with 64.
const THREADS: usize = 32;

/// Interval of the reaper's checks whether memtrace has exited.
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Interval of the checks whether a lock is still held, by a thread or by the reaper.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Maximum time that the drop of a [`Detach`] waits for locks.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Number of standard streams.
const STREAMS: libc::c_int = 3;

/// Link that keeps probes attached until it is dropped.
pub(super) struct AttachedProbes {
    count: usize,
    /// True if the removal can overlap with the removal of other links.
    overlaps: bool,
    /// Locks that must be free at the removal; `None` if the kernel does not show them.
    locks: Option<Arc<MemoryLocks>>,
    _link: Box<dyn Send>,
}

impl AttachedProbes {
    /// Takes a uprobe_multi link with `count` probes.
    pub(super) fn by_multi_link(link: impl Send + 'static, count: usize, locks: Option<Arc<MemoryLocks>>) -> Self {
        Self { count, overlaps: true, locks, _link: Box::new(link) }
    }

    /// Takes a perf event, which has one probe.
    pub(super) fn by_perf_event(link: impl Send + 'static, locks: Option<Arc<MemoryLocks>>) -> Self {
        Self { count: 1, overlaps: false, locks, _link: Box::new(link) }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Removal of probes in progress. Dropping this value waits until all probes are removed, or until a reaper process has taken
/// over because a lock was not released.
pub struct Detach {
    total: usize,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    removed: AtomicUsize,
    on_progress: Mutex<Box<dyn Fn() + Send>>,
    /// Locks that must be free; `None` if the kernel does not show them.
    locks: Option<Arc<MemoryLocks>>,
    /// Held by the thread that checks the locks. The other threads wait for it.
    check: Mutex<()>,
    wait: Mutex<LockWait>,
}

/// Links that no thread has taken yet.
#[derive(Default)]
struct Queue {
    links: Vec<AttachedProbes>,
    /// Number of threads that take links. A thread ends when there are none.
    workers: usize,
}

/// Wait for the lock of a memory map.
#[derive(Debug, Default)]
struct LockWait {
    /// Process that holds the lock; `None` if no thread waits.
    holder: Option<LockHolder>,
    /// Time when a reaper takes over; `None` to wait for ever.
    deadline: Option<Instant>,
    /// True after a reaper has taken over. The reaper has copies of all descriptors, so that closing them here removes no
    /// probe.
    is_left: bool,
}

impl LockWait {
    /// Sets the time when a reaper takes over, unless an earlier time is set.
    fn end_at(&mut self, time: Instant) {
        self.deadline = Some(self.deadline.map_or(time, |deadline| deadline.min(time)));
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }
}

impl Shared {
    fn remove_all(&self) {
        while let Some(probes) = self.take_next() {
            if let Some(locks) = &probes.locks {
                self.wait_for_locks(locks);
            }
            let count = probes.count();
            drop(probes);
            self.removed.fetch_add(count, Ordering::Release);
            self.report_progress();
        }
    }

    /// Returns a link to remove. Without one, the thread no longer counts as a worker.
    fn take_next(&self) -> Option<AttachedProbes> {
        let mut queue = self.queue();
        let next = queue.links.pop();
        queue.workers -= usize::from(next.is_none());
        next
    }

    fn report_progress(&self) {
        let on_progress = self.on_progress.lock().unwrap_or_else(PoisonError::into_inner);
        (*on_progress)();
    }

    /// Waits until no process holds the lock of its memory map, or a reaper has taken over.
    fn wait_for_locks(&self, locks: &MemoryLocks) {
        let _check = self.check.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.wait().is_left {
            let holder = locks.find_holder().unwrap_or_else(|error| {
                log::warn!("the locks of memory maps are not checked: {error}");
                None
            });
            let is_held = holder.is_some();
            let is_over = {
                let mut wait = self.wait();
                wait.holder = holder;
                wait.is_over(Instant::now())
            };
            if !is_held {
                return;
            }
            self.report_progress();
            if is_over {
                self.leave(locks);
            } else {
                thread::sleep(LOCK_PAUSE);
            }
        }
    }

    /// Lets a reaper take over, with the capabilities of this thread. The thread that waits for the removal may have fewer
    /// capabilities by then, and Linux before 6.4 may refuse an iteration without CAP_BPF (`__sys_bpf`, kernel/bpf/syscall.c).
    fn leave(&self, locks: &MemoryLocks) {
        let started = start_reaper(Some(locks));
        let mut wait = self.wait();
        match started {
            Ok(()) => wait.is_left = true,
            Err(error) => {
                log::warn!("cannot leave the removal of the probes to another process: {error}");
                wait.deadline = Some(Instant::now() + LONGEST_WAIT);
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> MutexGuard<'_, LockWait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Detach {
    /// Starts to remove `probes` in the background. Calls `on_progress` after the removal of each link.
    pub(super) fn start(probes: Vec<AttachedProbes>, on_progress: impl Fn() + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            removed: AtomicUsize::new(0),
            on_progress: Mutex::new(Box::new(on_progress)),
            locks: probes.iter().find_map(|link| link.locks.clone()),
            check: Mutex::new(()),
            wait: Mutex::default(),
        });
        let mut detach = Self { total: 0, shared, threads: Vec::new() };
        detach.add(probes);
        detach
    }

    /// Calls `on_progress` from now on.
    pub(super) fn set_on_progress(&self, on_progress: impl Fn() + Send + 'static) {
        *self.shared.on_progress.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(on_progress);
    }

    /// Removes `probes` too. From now on, the probes that are already removed do not count.
    pub(super) fn add(&mut self, probes: Vec<AttachedProbes>) {
        let removed = self.removed();
        self.shared.removed.fetch_sub(removed, Ordering::Relaxed);
        self.total = self.total - removed + probes.iter().map(AttachedProbes::count).sum::<usize>();
        self.threads.retain(|thread| !thread.is_finished());
        let mut queue = self.shared.queue();
        if queue.workers == 0 {
            // All earlier links are removed. A reaper that has taken over has no descriptors of the new links.
            *self.shared.wait() = LockWait::default();
        }
        queue.links.extend(probes);
        let overlapping = queue.links.iter().filter(|link| link.overlaps).count();
        let wanted = overlapping.clamp(usize::from(!queue.links.is_empty()), THREADS);
        while queue.workers < wanted {
            let shared = self.shared.clone();
            let worker = Builder::new().name(String::from("detach")).spawn(move || shared.remove_all());
            let Ok(worker) = worker else { break };
            self.threads.push(worker);
            queue.workers += 1;
        }
        if wanted > 0 && queue.workers == 0 {
            // No thread could be started.
            queue.workers = 1;
            drop(queue);
            self.shared.wait().end_at(Instant::now() + LONGEST_WAIT);
            self.shared.remove_all();
        }
    }

    /// Returns the number of probes to remove, including the ones that are removed since the last probes were added.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns how many of the [`Self::total`] probes are removed.
    #[must_use]
    pub fn removed(&self) -> usize {
        self.shared.removed.load(Ordering::Acquire)
    }

    /// Returns true if all probes are removed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.removed() == self.total
    }

    /// Returns the process that holds the lock of its memory map, if the removal waits for it.
    #[must_use]
    pub fn lock_holder(&self) -> Option<LockHolder> {
        self.shared.wait().holder.clone()
    }

    /// Hands the remaining probes over to a reaper process. The reaper exits when memtrace has exited and no process holds a
    /// lock.
    ///
    /// A process with the last descriptor of a probe exits only after the kernel has removed the probe. The reaper
    /// closes its descriptors after memtrace, so a process that waits for memtrace does not wait for the removal.
    ///
    /// # Errors
    ///
    /// Errors of fork(2). In this case, the call waits as the drop of this value does.
    pub fn hand_over(self) -> io::Result<()> {
        if self.lock_holder().is_some() {
            // The thread that waits for the lock starts the reaper.
            self.shared.wait().end_at(Instant::now());
            return Ok(());
        }
        start_reaper(self.shared.locks.as_deref())?;
        // The threads close their descriptors without delay.
        self.shared.wait().is_left = true;
        Ok(())
    }
}

impl Drop for Detach {
    fn drop(&mut self) {
        self.shared.wait().end_at(Instant::now() + LONGEST_WAIT);
        for thread in self.threads.drain(..) {
            // The threads do not panic.
            let _ = thread.join();
        }
    }
}

/// Starts the reaper: a child process that inherits all descriptors of memtrace, and exits after memtrace when `locks` are
/// free. The reaper closes its standard streams, so that the reader of a pipe does not wait for its exit.
fn start_reaper(locks: Option<&MemoryLocks>) -> io::Result<()> {
    // SAFETY: the call has no conditions.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child has only this thread, makes only async-signal-safe calls (signal-safety(7)) and system calls, and
    // does not return from `wait_for`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => wait_for(parent, locks),
        _ => Ok(()),
    }
}

fn wait_for(parent: libc::pid_t, locks: Option<&MemoryLocks>) -> ! {
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
    while locks.is_some_and(MemoryLocks::has_holder) {
        thread::sleep(LOCK_PAUSE);
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
            .map(|(link, count)| AttachedProbes::by_multi_link(link, count, None))
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
        let links = links.into_iter().map(|link| AttachedProbes::by_perf_event(link, None)).collect();
        let detach = Detach::start(links, || {});
        for _ in 0..3 {
            let name = starts.recv().unwrap();
            assert!(starts.try_recv().is_err(), "one at a time");
            permits[name].send(()).unwrap();
        }
        drop(detach);
        assert!(starts.try_recv().is_err());
    }

    #[test]
    fn later_probes_join_the_removal_in_progress() {
        let (started, starts) = channel();
        let (reported, progress) = channel();
        let (links, permits): (Vec<_>, Vec<_>) = (0..3).map(|name| slow(&started, name)).unzip();
        let mut links = links.into_iter().map(|link| AttachedProbes::by_perf_event(link, None));
        let mut detach = Detach::start(links.next().into_iter().collect(), || {});
        assert_eq!(starts.recv().unwrap(), 0);
        detach.set_on_progress(move || reported.send(()).unwrap());
        detach.add(links.collect());
        assert_eq!((detach.removed(), detach.total(), detach.threads.len()), (0, 3, 1));
        permits[0].send(()).unwrap();
        progress.recv().unwrap();
        assert_eq!((detach.removed(), detach.total()), (1, 3));
        detach.add(Vec::new());
        assert_eq!((detach.removed(), detach.total(), detach.is_complete()), (0, 2, false), "one is removed");
        for _ in 0..2 {
            permits[starts.recv().unwrap()].send(()).unwrap();
            progress.recv().unwrap();
        }
        assert!(detach.is_complete());
    }

    #[test]
    fn probes_can_be_added_to_a_complete_removal() {
        let mut detach = Detach::start(Vec::new(), || {});
        for _ in 0..2 {
            let (started, starts) = channel();
            let (link, permit) = slow(&started, 0);
            detach.add(vec![AttachedProbes::by_multi_link(link, 5, None)]);
            assert_eq!((starts.recv(), detach.removed(), detach.total()), (Ok(0), 0, 5));
            permit.send(()).unwrap();
            while !detach.is_complete() {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn wait_for_a_lock_ends_at_the_earliest_time() {
        let now = Instant::now();
        let mut wait = LockWait::default();
        assert!(!wait.is_over(now + Duration::from_secs(3600)), "no time is set");
        wait.end_at(now + 2 * LONGEST_WAIT);
        wait.end_at(now + LONGEST_WAIT);
        wait.end_at(now + 3 * LONGEST_WAIT);
        assert_eq!([now, now + LONGEST_WAIT].map(|time| wait.is_over(time)), [false, true]);
    }

    #[test]
    fn removing_no_probes_is_complete_at_once() {
        assert!(Detach::start(Vec::new(), || {}).is_complete());
    }
}
