//! End of memtrace by a second signal. The first signal ends the run, and the report is written. The second one ends memtrace
//! in a few seconds, even if memtrace waits for something.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::clock;

/// Minimum time between the two signals. Some programs send one signal to memtrace and the same signal to its process group,
/// for example timeout(1), or a shell when its terminal is closed.
const APART: Duration = Duration::from_millis(500);
/// Time limit for reading names after the second signal.
const NAMES: Duration = Duration::from_secs(2);
/// Time limit for writing outputs after the second signal. A report that is not written by then goes to a rescue file.
const OUTPUTS: Duration = Duration::from_secs(3);
/// Time limit for an orderly end after the second signal, in seconds. After it, memtrace exits at once.
const END: u32 = 4;

const MESSAGE: &[u8] = b"memtrace: a second signal ended memtrace before everything was written\n";

/// Exit code of a failure during the run.
const FAILED: i32 = 1;

/// Time of the first signal on the monotonic clock, in milliseconds; [`NEVER`] before the signal.
static FIRST: AtomicU64 = AtomicU64::new(NEVER);
/// Time of the second signal on the monotonic clock, in milliseconds; [`NEVER`] before the signal.
static SECOND: AtomicU64 = AtomicU64::new(NEVER);
const NEVER: u64 = u64::MAX;

/// True while memtrace attaches. The event loop receives no signal then.
static ATTACHING: AtomicBool = AtomicBool::new(false);

/// Starts to count these signals.
///
/// # Errors
///
/// Errors of sigaction(2).
pub(super) fn count(signals: &[i32]) -> io::Result<()> {
    // The first reading of the clock also reads a file, which a signal handler may not do.
    let _ = now();
    for &signal in signals {
        // SAFETY: the action changes atomic numbers, and calls clock_gettime(2) and alarm(2), which a signal handler may
        // call (signal-safety(7)).
        unsafe { signal_hook_registry::register(signal, add) }?;
    }
    // SAFETY: the action calls poll(2), write(2) and _exit(2), which a signal handler may call.
    unsafe { signal_hook_registry::register(libc::SIGALRM, end) }.map(drop)
}

/// Counts the signal that the event loop has just received as the first signal, and forgets an earlier second signal.
pub(super) fn forgive() {
    FIRST.store(now(), Ordering::Relaxed);
    if SECOND.swap(NEVER, Ordering::Relaxed) != NEVER {
        // SAFETY: the call has no conditions.
        unsafe { libc::alarm(0) };
    }
}

/// Sets the flag that memtrace is attaching.
pub(crate) fn set_attaching(is_attaching: bool) {
    ATTACHING.store(is_attaching, Ordering::Relaxed);
}

/// Returns true if memtrace must not wait for further files. Files of FUSE or NFS servers can take forever.
pub(crate) fn skips_files() -> bool {
    skips_names() || ATTACHING.load(Ordering::Relaxed) && FIRST.load(Ordering::Relaxed) != NEVER
}

/// Returns true if memtrace must not read further names.
pub(crate) fn skips_names() -> bool {
    is_past(NAMES)
}

/// Returns true if memtrace must give up outputs that cannot be written at once.
pub(crate) fn gives_up_outputs() -> bool {
    is_past(OUTPUTS)
}

fn is_past(time: Duration) -> bool {
    has_passed(time, SECOND.load(Ordering::Relaxed), now())
}

fn add() {
    let now = now();
    match FIRST.load(Ordering::Relaxed) {
        NEVER => FIRST.store(now, Ordering::Relaxed),
        first if has_passed(APART, first, now) && SECOND.load(Ordering::Relaxed) == NEVER => {
            SECOND.store(now, Ordering::Relaxed);
            // SAFETY: the call has no conditions.
            unsafe { libc::alarm(END) };
        }
        _ => {}
    }
}

fn has_passed(time: Duration, since: u64, now: u64) -> bool {
    now.saturating_sub(since) >= milliseconds(time)
}

fn end() {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the pointer is to one whole element.
    let is_writable = unsafe { libc::poll(&raw mut stderr, 1, 0) } == 1;
    // Standard error can be a full pipe, perhaps the one that memtrace waits for.
    if is_writable {
        // SAFETY: the pointer and the length belong to a constant.
        unsafe { libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
    }
    // SAFETY: the call ends the process without handlers.
    unsafe { libc::_exit(FAILED) };
}

fn now() -> u64 {
    milliseconds(clock::monotonic())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_past_without_a_second_signal() {
        assert!(!has_passed(NAMES, NEVER, 7_000));
        assert_eq!([2_999, 3_000].map(|now| has_passed(NAMES, 1_000, now)), [false, true]);
        assert!(NAMES < OUTPUTS && OUTPUTS < Duration::from_secs(END.into()));
    }
}
