//! Calls that a SIGKILL must not come between.
//!
//! To place or remove a breakpoint the kernel looks up the page that it lies in, and does not do so for a thread that has
//! been killed (`fatal_signal_pending`, mm/gup.c): the breakpoint then stays in its process for good ("failed to
//! unregister, leaking uprobe", kernel/events/uprobes.c). So such calls are made by a process of their own, which shares
//! memory and descriptors with this one and is not killed with it. A process that closes its descriptors as it ends is not
//! in that danger.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// What the calls and their wrappers need, and some: in 16 bytes each, which is how a stack is aligned.
const STACK: usize = (64 << 10) / size_of::<u128>();

/// Shares everything that the calls need. This thread sleeps until the other process has ended, so that both can have
/// one thread's local storage; it does so too in posix_spawn(3).
const SHARED: c_int = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_VFORK;

/// Runs `work` in a process of its own, and waits until that has ended. Where there can be none, it runs here.
///
/// # Safety
///
/// `work` may make system calls, and nothing else: other threads may have been killed with locks held.
pub(super) unsafe fn run<W: FnMut()>(mut work: W) {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let work = &raw mut work;
    let signals = Signals::hold();
    // SAFETY: the stack is as long as the constant says, grows down from its end, and lives until the process has ended,
    // as does the work; the thread sleeps until then, so that nobody else uses either.
    let pid = unsafe { libc::clone(process::<W>, top, SHARED, work.cast()) };
    drop(signals);
    if pid < 0 {
        // SAFETY: it was made from a reference above, and nothing else uses it.
        let work = unsafe { &mut *work };
        return work();
    }
    // SAFETY: nothing is written. What the process returned says nothing.
    unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) };
}

extern "C" fn process<W: FnMut()>(work: *mut c_void) -> c_int {
    // SAFETY: this is the pointer to work of this type that `run` has handed over.
    let work = unsafe { &mut *work.cast::<W>() };
    work();
    0
}

/// No signal reaches this thread while this lives, nor a process that it makes meanwhile: their handlers would run in both.
struct Signals(libc::sigset_t);

impl Signals {
    fn hold() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the call fills the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = all;
        // SAFETY: both are sets, and the thread's mask is written to the second.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: it was filled above, as a copy and then by the call.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: it is the set that the thread had before, and nothing is written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::os::fd::IntoRawFd;

    use super::*;

    fn own_pid() -> i64 {
        // SAFETY: the call has no conditions. The C library's own might remember another process'.
        unsafe { libc::syscall(libc::SYS_getpid) }
    }

    #[test]
    fn work_is_done_in_another_process_with_this_ones_memory() {
        let mut seen = 0;
        // SAFETY: it is one system call.
        unsafe { run(|| seen = own_pid()) };
        assert!(seen > 0);
        assert_ne!(seen, own_pid());
        // SAFETY: the call only asks whether there is such a process.
        let there = unsafe { libc::kill(i32::try_from(seen).unwrap(), 0) };
        assert_eq!(there, -1, "it has ended, and was waited for");
    }

    #[test]
    fn what_is_closed_there_is_closed_here() {
        let (mut reader, writer) = io::pipe().unwrap();
        let writer = writer.into_raw_fd();
        let close = || {
            // SAFETY: nobody owns the descriptor any more.
            unsafe { libc::close(writer) };
        };
        // SAFETY: it is one system call.
        unsafe { run(close) };
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nobody can write any more");
    }
}
