//! Reads of files in `/proc/PID`, for which the kernel takes locks of the process.
//!
//! A process can hold these locks for as long as it likes. While exec closes a file, and the FUSE server of the file does not
//! answer, it holds `exec_update_lock` (`begin_new_exec`, fs/exec.c). Then `/proc/PID/maps` cannot be opened (`mm_access`,
//! kernel/fork.c), and on newer kernels neither `stat` nor the link `exe` can be read (fs/proc/base.c). So a thread reads these
//! files. If it waits too long, it is left behind, and ends with memtrace: a signal that kills a process ends the wait.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_model::Pid;

/// Time that all slow reads together may take. Half of the used time is forgiven at an interval.
const TIME: Duration = Duration::from_secs(16);
const FORGIVEN_EACH: Duration = Duration::from_secs(60);

/// Part of the rest of this time that a read may take, so that a few slow processes do not use it up.
const PART: u32 = 8;

/// Time that each read may take. Nearly all need less.
const SHORTEST_TIME: Duration = Duration::from_millis(20);

/// Interval at which a waiting thread looks if memtrace is to end.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Size of the stacks of the threads.
const STACK: usize = 256 << 10;

/// Returns true if memtrace is to end. Not set if reads have no deadline.
static IS_STOPPED: OnceLock<fn() -> bool> = OnceLock::new();

static STATE: Mutex<State> = Mutex::new(State { left: BTreeSet::new(), used: Duration::ZERO, forgiven: None });

/// Number of reads that were given up.
static TIMEOUTS: AtomicU64 = AtomicU64::new(0);

type Work = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Channel to the thread that reads for this thread.
    static READER: RefCell<Option<SyncSender<Work>>> = const { RefCell::new(None) };
    /// True for the threads that read.
    static IS_READER: Cell<bool> = const { Cell::new(false) };
}

/// Gives reads a deadline from now on. As soon as `is_stopped` returns true, nothing waits for them.
pub(crate) fn enable(is_stopped: fn() -> bool) {
    let _ = IS_STOPPED.set(is_stopped);
}

/// Returns the number of reads that were given up.
pub(crate) fn timeouts() -> u64 {
    TIMEOUTS.load(Ordering::Relaxed)
}

struct State {
    /// Processes with a thread that was left behind.
    left: BTreeSet<Pid>,
    /// Time that slow reads have taken.
    used: Duration,
    forgiven: Option<Instant>,
}

impl State {
    /// Returns the time that a read of `pid` may take; `None` if a thread waits for this process already.
    fn time(&mut self, pid: Pid) -> Option<Duration> {
        let forgiven = self.forgiven.get_or_insert_with(Instant::now);
        if forgiven.elapsed() >= FORGIVEN_EACH {
            *forgiven = Instant::now();
            self.used /= 2;
        }
        let time = TIME.saturating_sub(self.used) / PART;
        (!self.left.contains(&pid)).then_some(time.max(SHORTEST_TIME))
    }

    fn add_used(&mut self, time: Duration) {
        self.used += time.saturating_sub(SHORTEST_TIME);
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the thread that reads for this thread. The next one has the capabilities that this thread has by then.
pub(crate) fn end_reader() {
    READER.set(None);
}

/// Lets `read` read files of the process `pid`, within the deadline.
///
/// # Errors
///
/// Errors of `read`; [`io::ErrorKind::TimedOut`] if the process holds a lock.
pub(crate) fn read<T: Send + 'static>(
    pid: Pid,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let Some(is_stopped) = IS_STOPPED.get() else { return read() };
    if IS_READER.get() || pid.0 == std::process::id() {
        return read();
    }
    let time = state().time(pid).ok_or(io::ErrorKind::TimedOut)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    begin(Box::new(move || {
        let _ = sender.send(read());
        let mut state = state();
        done.store(true, Ordering::Relaxed);
        state.left.remove(&pid);
    }))?;
    let start = Instant::now();
    let end = start + time;
    let error = loop {
        if is_stopped() {
            break io::ErrorKind::Interrupted;
        }
        let left = end.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(STOP_INTERVAL)) {
            Ok(result) => {
                if start.elapsed() > SHORTEST_TIME {
                    state().add_used(start.elapsed());
                }
                return result;
            }
            Err(RecvTimeoutError::Disconnected) => break io::ErrorKind::BrokenPipe,
            Err(RecvTimeoutError::Timeout) if left.is_zero() => break io::ErrorKind::TimedOut,
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    end_reader();
    TIMEOUTS.fetch_add(1, Ordering::Relaxed);
    let mut state = state();
    state.add_used(start.elapsed());
    // The read can have ended since.
    if !is_done.load(Ordering::Relaxed) {
        state.left.insert(pid);
    }
    Err(error.into())
}

/// Lets the reader of this thread do the work. If there is none, it is started.
fn begin(work: Work) -> io::Result<()> {
    let sent = READER.with_borrow(|reader| match reader {
        Some(reader) => reader.send(work).map_err(|error| error.0),
        None => Err(work),
    });
    let Err(work) = sent else { return Ok(()) };
    let (sender, receiver) = mpsc::sync_channel::<Work>(1);
    thread::Builder::new().name("memtrace-procfs".into()).stack_size(STACK).spawn(move || {
        IS_READER.set(true);
        receiver.into_iter().for_each(|work| work());
    })?;
    sender.send(work).map_err(|_| io::ErrorKind::BrokenPipe)?;
    READER.set(Some(sender));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn process_that_holds_a_lock_is_not_waited_for_again() {
        enable(|| false);
        let (pid, other) = (Pid(u32::MAX), Pid(u32::MAX - 1));
        let barrier = Arc::new(Barrier::new(2));
        let waiting = Arc::clone(&barrier);
        let kind = |result: io::Result<u32>| result.map_err(|error| error.kind());
        let locked = move || {
            waiting.wait();
            Ok(1)
        };
        let before = timeouts();
        assert_eq!(kind(read(pid, locked)), Err(io::ErrorKind::TimedOut));
        assert_eq!(kind(read(pid, || Ok(2))), Err(io::ErrorKind::TimedOut));
        assert_eq!(timeouts(), before + 1);
        assert_eq!(kind(read(other, || Ok(3))), Ok(3), "another thread reads");
        barrier.wait();
        while state().left.contains(&pid) {
            thread::yield_now();
        }
        assert_eq!(kind(read(pid, || Ok(4))), Ok(4));
        end_reader();
    }

    #[test]
    fn slow_reads_share_a_time() {
        let mut state = State { left: BTreeSet::new(), used: Duration::ZERO, forgiven: None };
        let mut sum = Duration::ZERO;
        for _ in 0..1000 {
            let time = state.time(Pid(1)).unwrap();
            state.add_used(time);
            sum += time;
        }
        assert!(sum < TIME + 1000 * SHORTEST_TIME, "{sum:?}");
        assert_eq!(state.time(Pid(1)), Some(SHORTEST_TIME));
        state.forgiven = Instant::now().checked_sub(FORGIVEN_EACH);
        assert!(state.time(Pid(1)) > Some(SHORTEST_TIME));
    }
}
