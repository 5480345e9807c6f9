//! Reads of files in `/proc/PID`. The kernel takes locks of the process for them.
//!
//! A process can hold these locks for as long as it likes. If exec closes a file and the FUSE server of the file does not
//! answer, the process holds `exec_update_lock` (`begin_new_exec`, fs/exec.c) until the answer. During this time,
//! `/proc/PID/maps` cannot be opened (`mm_access`, kernel/fork.c), and on newer kernels neither `stat` nor the link `exe` can
//! be read (fs/proc/base.c). So a separate thread reads these files. If the thread waits too long, memtrace leaves it behind.
//! The thread ends with memtrace: a signal that kills a process ends the wait.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_model::{Pid, Tid};
use rustix::thread::CapabilitySet;

use self::limits::{Limits, SHORTEST_TIME};
use super::blocked_time::BlockedTime;
use super::kernel_text;
use crate::privileges;
use crate::unread_files::{self, UnreadFile};

mod limits;

/// Interval of a waiting thread's checks whether memtrace is to end, and whether the reader works.
const INTERVAL: Duration = Duration::from_millis(50);

/// Maximum duration of a read, even if its thread works, for instance on the memory map of a large process.
const LONGEST_TIME: Duration = Duration::from_secs(60);

/// Size of the stacks of the threads.
const STACK: usize = 256 << 10;

/// Settings of [`enable`]. Without them, reads have no deadline.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

static LIMITS: Mutex<Limits> = Mutex::new(Limits::new());

struct Settings {
    /// Returns true if memtrace is to end.
    is_stopped: fn() -> bool,
    capabilities: CapabilitySet,
}

type Work = Box<dyn FnOnce() + Send>;

/// A thread that reads.
#[derive(Clone)]
struct Reader {
    work: SyncSender<Work>,
    tid: Tid,
}

thread_local! {
    /// The thread that reads for this thread.
    static READER: RefCell<Option<Reader>> = const { RefCell::new(None) };
    /// True for the threads that read.
    static IS_READER: Cell<bool> = const { Cell::new(false) };
}

/// Gives reads a deadline from now on. As soon as `is_stopped` returns true, memtrace stops waiting for slow reads. The threads
/// that read have at most the capabilities `capabilities`.
pub(crate) fn enable(is_stopped: fn() -> bool, capabilities: CapabilitySet) {
    let _ = SETTINGS.set(Settings { is_stopped, capabilities });
}

/// Returns true if memtrace is to end.
pub(crate) fn is_stopped() -> bool {
    SETTINGS.get().is_some_and(|settings| (settings.is_stopped)())
}

/// Ends the thread that reads for this thread. The next reader gets the capabilities that this thread has when the reader starts.
pub fn end_reader() {
    READER.set(None);
}

fn limits() -> MutexGuard<'static, Limits> {
    LIMITS.lock().unwrap_or_else(PoisonError::into_inner)
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
    let Some(settings) = SETTINGS.get() else { return read() };
    if IS_READER.get() || pid.0 == std::process::id() {
        return read();
    }
    if !limits().permit(pid, || user(pid)) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let mark = Arc::new(Mutex::new(Mark::Pending));
    let guard = Guard { pid, mark: Arc::clone(&mark) };
    let begun = begin(settings, move || {
        // Dropped at the end, even if the read panics.
        let _guard = guard;
        let _ = sender.send(read());
    });
    let result = begun.and_then(|reader| wait(pid, &reader, &receiver, settings));
    let is_given_up = |error: &io::Error| [io::ErrorKind::TimedOut, io::ErrorKind::Interrupted].contains(&error.kind());
    if result.as_ref().is_err_and(is_given_up) {
        end_reader();
        unread_files::add(UnreadFile::Process(pid));
        let mut mark = mark.lock().unwrap_or_else(PoisonError::into_inner);
        if *mark == Mark::Pending {
            *mark = Mark::Left;
            limits().add_left(pid, user(pid));
        }
    }
    result
}

/// State of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Pending,
    /// Its thread was left behind.
    Left,
    Done,
}

/// Marks a read as done at its end.
struct Guard {
    pid: Pid,
    mark: Arc<Mutex<Mark>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.mark.lock().unwrap_or_else(PoisonError::into_inner), Mark::Done);
        if before == Mark::Left {
            limits().remove_left(self.pid);
        }
    }
}

/// Returns the real user of a process. The kernel takes no lock for it.
fn user(pid: Pid) -> Option<u32> {
    kernel_text::real_user(pid)
}

/// Waits for the result of a read. The time that the thread runs, or waits for a processor, does not count: the process is not
/// the reason for it.
fn wait<T>(pid: Pid, reader: &Reader, receiver: &Receiver<io::Result<T>>, settings: &Settings) -> io::Result<T> {
    if let Some(result) = receive(receiver, SHORTEST_TIME) {
        return result;
    }
    let (start, blocked) = (Instant::now(), BlockedTime::start(reader.tid));
    let user = user(pid);
    let time = limits().time(user);
    let result = loop {
        if let Some(result) = receive(receiver, INTERVAL) {
            break result;
        }
        if (settings.is_stopped)() {
            break Err(io::ErrorKind::Interrupted.into());
        }
        if blocked.elapsed() >= time || start.elapsed() >= LONGEST_TIME {
            break Err(io::ErrorKind::TimedOut.into());
        }
    };
    limits().add_used(user, blocked.elapsed());
    result
}

/// Returns the result of a read; `None` if there is none within `time`.
fn receive<T>(receiver: &Receiver<io::Result<T>>, time: Duration) -> Option<io::Result<T>> {
    match receiver.recv_timeout(time) {
        Ok(result) => Some(result),
        Err(RecvTimeoutError::Disconnected) => Some(Err(io::ErrorKind::BrokenPipe.into())),
        Err(RecvTimeoutError::Timeout) => None,
    }
}

/// Passes the work to the reader of this thread. Starts a reader if there is none.
fn begin(settings: &'static Settings, work: impl FnOnce() + Send + 'static) -> io::Result<Reader> {
    let work: Work = Box::new(work);
    let known = READER.with_borrow(Clone::clone);
    let work = match known {
        Some(reader) => match reader.work.send(work) {
            Ok(()) => return Ok(reader),
            Err(error) => error.0,
        },
        None => work,
    };
    let (sender, receiver) = mpsc::sync_channel::<Work>(1);
    let (own, tids) = mpsc::sync_channel(1);
    let run = move || {
        IS_READER.set(true);
        let kept = privileges::keep_capabilities(settings.capabilities);
        if let Err(error) = kept.and_then(|()| privileges::refuse_new_privileges()) {
            log::debug!("a thread that reads procfs keeps its privileges: {error}");
        }
        let _ = own.send(Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()));
        receiver.into_iter().for_each(|work| work());
    };
    // If no thread can be started, the process cannot be read in time.
    let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
    thread::Builder::new().name("memtrace-procfs".into()).stack_size(STACK).spawn(run).map_err(timed_out)?;
    let reader = Reader { work: sender, tid: tids.recv().map_err(|_| io::ErrorKind::BrokenPipe)? };
    reader.work.send(work).map_err(|_| io::ErrorKind::BrokenPipe)?;
    READER.set(Some(reader.clone()));
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn process_that_holds_a_lock_is_not_waited_for_again() {
        enable(|| false, privileges::effective_capabilities());
        let (pid, other) = (Pid(u32::MAX), Pid(u32::MAX - 1));
        let barrier = Arc::new(Barrier::new(2));
        let waiting = Arc::clone(&barrier);
        let kind = |result: io::Result<u32>| result.map_err(|error| error.kind());
        let locked = move || {
            waiting.wait();
            Ok(1)
        };
        assert_eq!(kind(read(pid, locked)), Err(io::ErrorKind::TimedOut));
        assert_eq!(kind(read(pid, || Ok(2))), Err(io::ErrorKind::TimedOut));
        assert_eq!(unread_files::count_of(&UnreadFile::Process(pid)), 1);
        assert_eq!(kind(read(other, || Ok(3))), Ok(3), "another thread reads");
        barrier.wait();
        while !limits().permit(pid, || None) {
            thread::yield_now();
        }
        assert_eq!(kind(read(pid, || Ok(4))), Ok(4));
        // A thread that computes does not wait for a lock.
        let start = Instant::now();
        let busy = move || {
            while start.elapsed() < Duration::from_secs(3) {
                std::hint::spin_loop();
            }
            Ok(5)
        };
        assert_eq!(kind(read(pid, busy)), Ok(5));
        end_reader();
    }
}
