//! A process that holds what this one held, and ends when this one has ended.

use std::io;
use std::ptr;

/// How often the heir looks whether it has inherited.
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The first descriptor that is not a standard stream.
const FIRST_OWN: libc::c_int = 3;

/// Starts it. It has the standard streams closed, so that nobody waits for it to write something.
pub(super) fn start() -> io::Result<()> {
    // SAFETY: the call only reads the process' id.
    let parent = unsafe { libc::getpid() };
    // SAFETY: in the new process, where no other thread goes on, only calls are made that are allowed there
    // (signal-safety(7)), and `wait` does not return.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => wait(parent),
        _ => Ok(()),
    }
}

fn wait(parent: libc::pid_t) -> ! {
    // SAFETY: the call has no conditions. What is sent to the terminal's processes does not reach this one from now on.
    unsafe { libc::setsid() };
    for stream in 0..FIRST_OWN {
        // SAFETY: nothing in this process uses the streams any more.
        unsafe { libc::close(stream) };
    }
    // It gets another parent when all threads of its parent have closed what they held (`do_exit`, kernel/exit.c).
    // SAFETY: the call has no conditions.
    while unsafe { libc::getppid() } == parent {
        // SAFETY: the time is a constant, and nothing is written.
        unsafe { libc::nanosleep(&raw const PAUSE, ptr::null_mut()) };
    }
    // SAFETY: the call has no conditions.
    unsafe { libc::_exit(0) }
}
