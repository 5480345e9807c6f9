//! Helper process for system calls that a SIGKILL to memtrace must not interrupt.
//!
//! To insert or remove a breakpoint, the kernel looks up the page of the breakpoint. It refuses the lookup for a killed thread
//! (`fatal_signal_pending`, mm/gup.c). The breakpoint then stays in the traced process forever ("failed to unregister, leaking
//! uprobe", kernel/events/uprobes.c). Therefore a helper process makes these calls. The helper shares memory and descriptors with
//! memtrace, but is not killed with it. Probes that the kernel removes when memtrace exits do not have this problem.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// Stack size of the helper, in units of 16 bytes, which is the alignment of a stack.
const STACK: usize = (64 << 10) / size_of::<u128>();

/// With `CLONE_VFORK`, the calling thread sleeps until the helper exits. The helper can therefore use the thread's
/// thread-local storage, as in posix_spawn(3).
const CLONE_FLAGS: c_int = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_VFORK;

/// Runs `work` in a helper process and waits until it exits. If the process cannot be created, runs `work` in this
/// thread.
///
/// # Safety
///
/// `work` may only make system calls: other threads may have been killed while they held locks.
pub(super) unsafe fn run<W: FnMut()>(mut work: W) {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let work = &raw mut work;
    let signals = BlockedSignals::block();
    // SAFETY: the stack grows down from its end. Stack and work live until the process has exited, and nothing else
    // uses them, because this thread sleeps until then.
    let pid = unsafe { libc::clone(process::<W>, top, CLONE_FLAGS, work.cast()) };
    drop(signals);
    if pid < 0 {
        // SAFETY: the pointer is to the local `work` above, and nothing else uses it.
        let work = unsafe { &mut *work };
        return work();
    }
    // SAFETY: the call writes no memory. The exit status carries no information.
    unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) };
}

extern "C" fn process<W: FnMut()>(work: *mut c_void) -> c_int {
    // SAFETY: `run` passes a pointer to work of this type.
    let work = unsafe { &mut *work.cast::<W>() };
    work();
    0
}

/// Blocks all signals in the calling thread until it is dropped. The helper inherits this mask: without it, a signal
/// handler of memtrace could run in the helper.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn block() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the call fills the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = all;
        // SAFETY: both are signal sets; the call writes the thread's mask to the second.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: it is a copy of a filled set, overwritten by the call.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: it is the thread's earlier mask, and the call writes no memory.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::os::fd::IntoRawFd;

    use super::*;

    fn own_pid() -> i64 {
        // SAFETY: the call has no conditions. The C library's getpid may cache the pid of another process.
        unsafe { libc::syscall(libc::SYS_getpid) }
    }

    #[test]
    fn work_runs_in_another_process_with_shared_memory() {
        let mut seen = 0;
        // SAFETY: the work is one system call.
        unsafe { run(|| seen = own_pid()) };
        assert!(seen > 0);
        assert_ne!(seen, own_pid());
        // SAFETY: signal 0 only checks if the process exists.
        let status = unsafe { libc::kill(i32::try_from(seen).unwrap(), 0) };
        assert_eq!(status, -1, "the helper has exited and was reaped");
    }

    #[test]
    fn descriptors_closed_by_the_helper_are_closed_here() {
        let (mut reader, writer) = io::pipe().unwrap();
        let writer = writer.into_raw_fd();
        let close = || {
            // SAFETY: nothing else owns the descriptor.
            unsafe { libc::close(writer) };
        };
        // SAFETY: the work is one system call.
        unsafe { run(close) };
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the write end is closed");
    }
}
