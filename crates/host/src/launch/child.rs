//! The child between fork and exec.
//!
//! If another thread of memtrace holds a lock during the fork, such as the lock of the heap, the lock stays locked in
//! the child forever. Therefore the child only makes system calls, on data that is prepared in a [`Plan`]: it does not
//! allocate, free or panic.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use memtrace_model::Pid;

use super::Identity;

/// Byte that opens the barrier.
pub(super) const GO: u8 = 1;

/// Exit code of a child that did not execute the command, as in a shell.
const NOT_STARTED: libc::c_int = 127;

/// Highest signal number (`_NSIG`, arch/x86/include/asm/signal.h).
const SIGNALS: libc::c_int = 64;

/// Shell that executes scripts without `#!`, as in `execvp`.
const SHELL: &CStr = c"/bin/sh";

/// Strings with a null-terminated array of pointers for `execve`.
pub(super) struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    pub(super) fn new(owned: Vec<CString>) -> Self {
        let pointers = owned.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, _owned: owned }
    }
}

/// Prepared data of the child.
pub(super) struct Plan {
    /// Candidate files of the command, in order.
    pub(super) paths: Vec<CString>,
    pub(super) arguments: Strings,
    pub(super) environment: Strings,
    pub(super) identity: Option<Identity>,
}

/// Step of the child that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Identity,
    Exec,
}

/// Reason why the child did not execute the command, sent through the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) errno: i32,
}

impl Failure {
    pub(super) const SIZE: usize = 5;

    fn encode(self) -> [u8; Self::SIZE] {
        let [a, b, c, d] = self.errno.to_ne_bytes();
        [self.step as u8, a, b, c, d]
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[step, a, b, c, d] = bytes else { return None };
        let step = if step == Step::Identity as u8 { Step::Identity } else { Step::Exec };
        Some(Self { step, errno: i32::from_ne_bytes([a, b, c, d]) })
    }
}

/// Forks the child, which waits for [`GO`] from `waiting`.
pub(super) fn fork(
    plan: &Plan,
    waiting: BorrowedFd<'_>,
    barrier: BorrowedFd<'_>,
    reporting: BorrowedFd<'_>,
) -> io::Result<Pid> {
    // With all signals blocked, none of memtrace's handlers can run in the child before it resets them.
    let before = block_signals();
    let mut shell = Vec::from([SHELL.as_ptr(), ptr::null()]);
    shell.extend(plan.arguments.pointers.iter().skip(1));
    // SAFETY: the child only calls `run`, which only makes system calls on prepared data.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        run(plan, &mut shell, waiting.as_raw_fd(), barrier.as_raw_fd(), reporting.as_raw_fd());
    }
    let error = io::Error::last_os_error();
    set_signal_mask(&before);
    u32::try_from(pid).map(Pid).map_err(|_| error)
}

/// Runs the child up to the exec.
fn run(plan: &Plan, shell: &mut [*const c_char], waiting: RawFd, barrier: RawFd, reporting: RawFd) -> ! {
    reset_signals();
    // Close the write end, so that the pipe closes with the parent's copy.
    // SAFETY: the child does not use this descriptor.
    unsafe { libc::close(barrier) };
    if !wait(waiting) {
        exit();
    }
    let failure = match plan.identity.as_ref().map_or(Ok(()), switch_identity) {
        Ok(()) => Failure { step: Step::Exec, errno: exec(plan, shell) },
        Err(errno) => Failure { step: Step::Identity, errno },
    };
    let report = failure.encode();
    // SAFETY: `report` is valid for its length. A failure of this call cannot be reported.
    unsafe { libc::write(reporting, report.as_ptr().cast(), report.len()) };
    exit();
}

/// Waits at the barrier. Returns false if the pipe closes instead.
fn wait(waiting: RawFd) -> bool {
    let mut byte = 0_u8;
    loop {
        // SAFETY: `byte` has room for the one byte.
        let count = unsafe { libc::read(waiting, (&raw mut byte).cast(), 1) };
        match count {
            1 => return byte == GO,
            -1 if errno() == libc::EINTR => {}
            _ => return false,
        }
    }
}

/// Switches to the identity permanently. Groups come first, since changing the uid drops the necessary privileges.
///
/// Uses system calls: the C library's wrappers would signal all threads, which do not exist in the child.
fn switch_identity(identity: &Identity) -> Result<(), i32> {
    let (uid, gid, groups) = (identity.uid, identity.gid, &identity.groups);
    // SAFETY: `groups` is valid for its length.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: takes three integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: takes three integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Executes the first path that can be executed. Returns the error number if there is none.
///
/// Tries the next path after the same errors as `execvp` (glibc, posix/execvpe.c).
fn exec(plan: &Plan, shell: &mut [*const c_char]) -> i32 {
    let mut result = libc::ENOENT;
    for path in &plan.paths {
        let mut error = execve(path, &plan.arguments.pointers, &plan.environment.pointers);
        if error == libc::ENOEXEC {
            if let Some(script) = shell.get_mut(1) {
                *script = path.as_ptr();
            }
            error = execve(SHELL, shell, &plan.environment.pointers);
        }
        match error {
            // If no other path can be executed, this error is more useful than "not found".
            libc::EACCES => result = error,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return error,
        }
    }
    result
}

fn execve(path: &CStr, arguments: &[*const c_char], environment: &[*const c_char]) -> i32 {
    // SAFETY: the path is a C string, and both arrays are null-terminated and point to live C strings.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    errno()
}

/// Resets the signals that memtrace handles to their default action, and unblocks all. Signals that memtrace inherited
/// as ignored (from `nohup`, for example) stay ignored, except SIGPIPE, which the Rust runtime ignores.
fn reset_signals() {
    for signal in 1..=SIGNALS {
        let mut action = no_action();
        // SAFETY: `action` is valid; a null pointer queries the present action without changing it.
        let is_valid = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } == 0;
        if is_valid && (action.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE) {
            let default = no_action();
            // SAFETY: `default` is valid: all zeros are the default action without flags.
            unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
        }
    }
    // SAFETY: sigset_t is plain data, and all zeros are the empty set.
    set_signal_mask(&unsafe { mem::zeroed() });
}

fn no_action() -> libc::sigaction {
    // SAFETY: sigaction is plain data, and all zeros are a value of it.
    unsafe { mem::zeroed() }
}

/// Blocks all signals and returns the previous mask.
fn block_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data, and all zeros are the empty set.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    // SAFETY: `all` is valid.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are valid.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn set_signal_mask(mask: &libc::sigset_t) {
    // SAFETY: the mask is valid; the null pointer discards the old one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(mask), ptr::null_mut()) };
}

fn check(result: libc::c_long) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn exit() -> ! {
    // SAFETY: exits without running the parent's exit handlers.
    unsafe { libc::_exit(NOT_STARTED) }
}
