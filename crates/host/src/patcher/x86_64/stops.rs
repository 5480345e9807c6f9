//! Time limits of a stop.
//!
//! While threads are stopped, the patcher runs with the lowest real-time priority: a wait with the usual priority takes ten
//! times as long on a busy machine. Signals interrupt its waits regularly, so that it sees the end of its time. If it hangs
//! in the kernel, a timer kills it: the kernel then lets the threads run (`exit_ptrace`, kernel/ptrace.c). Outside of a stop, the
//! timer runs too, because a process can make each access to its memory or its files in procfs hang.

use std::cell::Cell;
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::ptrace::{self, Change, ThreadId};
use crate::patcher::refusal::MAX_THREADS;

/// Interval of the signals that interrupt waits.
const TICK: Duration = Duration::from_millis(20);
/// Time after which the patcher is killed if a stop has not ended.
const LONGEST_STOP: Duration = Duration::from_secs(2);
/// Time after which the patcher is killed if its work before the first stop, or after one, has not ended.
const LONGEST_WORK: Duration = Duration::from_secs(4);

/// True while the patcher begins to trace a thread.
static SEIZES: AtomicBool = AtomicBool::new(false);
/// Changes that [`on_tick`] has taken: the thread in the upper half, the status in the lower one.
static TAKEN: [AtomicU64; MAX_THREADS] = [const { AtomicU64::new(0) }; MAX_THREADS];
/// Number of changes in [`TAKEN`].
static TAKEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Timers of the patcher.
#[derive(Debug)]
pub(super) struct StopClock {
    /// Timer that kills this process.
    watchdog: libc::timer_t,
    leaves_threads: Cell<bool>,
}

impl StopClock {
    /// Creates the timers, and handles the signal that interrupts waits.
    pub(super) fn new() -> io::Result<Self> {
        handle_ticks()?;
        // SAFETY: a sigevent is plain data, and all zeros are a value of it.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut watchdog: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are valid for the length of the call.
        match unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut watchdog) } {
            0 => Ok(Self { watchdog, leaves_threads: Cell::new(false) }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Begins a request.
    pub(super) fn begin_request(&self) -> io::Result<()> {
        self.set_watchdog(LONGEST_WORK)
    }

    /// Ends a request.
    pub(super) fn end_request(&self) {
        // If threads are still traced, the timer stays: the process must end.
        if !self.leaves_threads() {
            let _ = self.set_watchdog(Duration::ZERO);
        }
    }

    /// Begins a stop, which may take `time`.
    pub(super) fn begin(&self, time: Duration) -> io::Result<StopTime<'_>> {
        TAKEN_COUNT.store(0, Ordering::Relaxed);
        self.set_watchdog(LONGEST_STOP)?;
        let now = Instant::now();
        let stop = StopTime { clock: self, deadline: now + time };
        tick_every(TICK)?;
        // If this fails, the service has no real-time priorities, and a stop takes longer.
        set_priority(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Ok(stop)
    }

    /// Returns true if threads are still traced. Only the end of this process lets them run.
    pub(super) fn leaves_threads(&self) -> bool {
        self.leaves_threads.get()
    }

    fn set_watchdog(&self, time: Duration) -> io::Result<()> {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = libc::time_t::try_from(time.as_secs()).map_err(io::Error::other)?;
        let value = libc::timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
        let setting = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: the timer exists as long as this value, and the setting is valid; the earlier setting is not wanted.
        match unsafe { libc::timer_settime(self.watchdog, 0, &raw const setting, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for StopClock {
    fn drop(&mut self) {
        // SAFETY: the timer exists, and nothing uses it after this.
        unsafe { libc::timer_delete(self.watchdog) };
    }
}

/// Time of a stop. Its end resets the priority and the timers.
#[derive(Debug)]
pub(super) struct StopTime<'clock> {
    clock: &'clock StopClock,
    deadline: Instant,
}

impl StopTime<'_> {
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Traces a thread. A thread that executes another program holds the lock that this call takes, and waits until the threads
    /// that have ended are reaped (`de_thread`, fs/exec.c). This process can be their tracer, so [`on_tick`] reaps them. After
    /// the call, [`Self::take_changes`] returns the changes that [`on_tick`] has taken.
    pub(super) fn seize(&self, tid: ThreadId) -> io::Result<()> {
        SEIZES.store(true, Ordering::Relaxed);
        let seized = ptrace::seize(tid);
        SEIZES.store(false, Ordering::Relaxed);
        seized
    }

    /// Returns the changes of threads that were taken while another thread was seized. No wait returns them.
    pub(super) fn take_changes(&self) -> Vec<(ThreadId, Change)> {
        let count = TAKEN_COUNT.swap(0, Ordering::Relaxed);
        TAKEN.iter().take(count).map(|taken| decoded(taken.load(Ordering::Relaxed))).collect()
    }

    /// Records that a thread is still traced at the end of the stop.
    pub(super) fn leave_threads(&self) {
        self.clock.leaves_threads.set(true);
    }
}

impl Drop for StopTime<'_> {
    fn drop(&mut self) {
        set_priority(libc::SCHED_OTHER, 0);
        let _ = tick_every(Duration::ZERO);
        // If threads are still traced, the timer stays: the process must end.
        if !self.clock.leaves_threads() {
            let _ = self.clock.set_watchdog(LONGEST_WORK);
        }
    }
}

/// Installs the handler of `SIGALRM` without `SA_RESTART`, so that the signal interrupts waits.
fn handle_ticks() -> io::Result<()> {
    // SAFETY: sigaction is plain data, and all zeros are a value of it: no flags, so no restarted system calls.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_tick as *const () as libc::sighandler_t;
    // SAFETY: `action` is valid, and the handler is safe at any time.
    if unsafe { libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a set of signals is plain data, and all zeros are a value.
    let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the set is valid.
    unsafe { libc::sigemptyset(&raw mut signals) };
    // SAFETY: the set is valid, and so is the signal.
    unsafe { libc::sigaddset(&raw mut signals, libc::SIGALRM) };
    // SAFETY: the set is valid, and the earlier mask is not wanted.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Handler of `SIGALRM`: takes the changes of traced threads if the patcher begins to trace another one. It only makes system
/// calls, and writes to atomics.
extern "C" fn on_tick(_: libc::c_int) {
    if !SEIZES.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the call has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer leads to this thread's error number.
    let before = unsafe { *errno };
    for _ in 0..MAX_THREADS {
        if !take_change() {
            break;
        }
    }
    // SAFETY: the pointer leads to this thread's error number.
    unsafe { *errno = before };
}

/// Takes a change of a traced thread. Returns false if there is no change, or no room for it. A wait for the end of threads alone
/// is not possible: such a wait takes their stops, too (`wait_task_stopped`, kernel/exit.c).
fn take_change() -> bool {
    let count = TAKEN_COUNT.load(Ordering::Relaxed);
    let Some(place) = TAKEN.get(count) else { return false };
    let Ok(Some((tid, status))) = ptrace::wait(libc::WNOHANG) else { return false };
    if let Change::Signal(signal) = Change::of(status) {
        // The thread gets its signal before it stops. If this fails, the thread was killed.
        let _ = ptrace::resume(tid, signal);
    } else {
        place.store(encoded(tid, status), Ordering::Relaxed);
        TAKEN_COUNT.store(count + 1, Ordering::Relaxed);
    }
    true
}

fn encoded(tid: ThreadId, status: libc::c_int) -> u64 {
    u64::from(tid.cast_unsigned()) << 32 | u64::from(status.cast_unsigned())
}

fn decoded(taken: u64) -> (ThreadId, Change) {
    (((taken >> 32) as u32).cast_signed(), Change::of((taken as u32).cast_signed()))
}

/// Sends `SIGALRM` to this process at this interval; never if it is 0.
fn tick_every(interval: Duration) -> io::Result<()> {
    let seconds = libc::time_t::try_from(interval.as_secs()).map_err(io::Error::other)?;
    let interval = libc::timeval { tv_sec: seconds, tv_usec: interval.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the setting is valid; the earlier setting is not wanted.
    match unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_priority(policy: libc::c_int, priority: libc::c_int) {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are valid.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0 {
        log::debug!("the priority of the patcher stays: {}", io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_changes_keep_thread_and_status() {
        for (tid, status, change) in [
            (1, 0x0009, Change::Ended),
            (4_194_303, 0x80_057f, Change::Stopped),
            (77, 0x857f, Change::Call),
            (i32::MAX, 0x0a7f, Change::Signal(libc::SIGUSR1)),
        ] {
            assert_eq!(decoded(encoded(tid, status)), (tid, change), "{status:#x}");
        }
    }
}
