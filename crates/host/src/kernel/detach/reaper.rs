//! Reaper: a child process that inherits all descriptors of memtrace and exits after it.

use std::io;
use std::ptr;

/// Interval at which the reaper checks if its parent has exited.
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Number of standard streams.
const STREAMS: libc::c_int = 3;

/// Starts the reaper. The reaper closes its standard streams, so that the reader of a pipe does not wait for its exit.
pub(super) fn start() -> io::Result<()> {
    // SAFETY: the call has no conditions.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child has only this thread, makes only async-signal-safe calls (signal-safety(7)), and does not
    // return from `wait`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => wait(parent),
        _ => Ok(()),
    }
}

fn wait(parent: libc::pid_t) -> ! {
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
