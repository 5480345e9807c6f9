//! What happens between fork and exec.
//!
//! Another thread of memtrace may have held the heap's lock, or any other, when the child was forked, and nobody will
//! ever unlock it in the child. So the child only makes system calls, and everything that it needs lies ready in a
//! [`Plan`]: it neither allocates nor frees nor panics.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use super::Identity;
use crate::model::Pid;

/// The byte that opens the barrier.
pub(super) const GO: u8 = 1;

/// What a shell says of a command that could not be started, and so does a child whose barrier never opens.
const NOT_STARTED: libc::c_int = 127;

/// The highest signal (`_NSIG`, arch/x86/include/asm/signal.h).
const SIGNALS: libc::c_int = 64;

/// The shell that runs files without a `#!`, as `execvp` has it.
const SHELL: &CStr = c"/bin/sh";

/// Strings with the array of pointers to them that `execve` wants.
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

/// All that the child needs.
pub(super) struct Plan {
    /// The files that the command may be, in the order in which they are tried.
    pub(super) paths: Vec<CString>,
    pub(super) arguments: Strings,
    pub(super) environment: Strings,
    pub(super) identity: Option<Identity>,
}

/// The step at which the child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Identity,
    Exec,
}

/// Why the child did not become the command, as it goes through the pipe: the step and the error's number.
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

/// Forks the child, which waits for [`GO`] to come through `waiting`.
pub(super) fn fork(
    plan: &Plan,
    waiting: BorrowedFd<'_>,
    barrier: BorrowedFd<'_>,
    reporting: BorrowedFd<'_>,
) -> io::Result<Pid> {
    // With all signals blocked, none of memtrace's handlers can run in the child before they are taken off there.
    let before = block_signals();
    let mut shell = Vec::from([SHELL.as_ptr(), ptr::null()]);
    shell.extend(plan.arguments.pointers.iter().skip(1));
    // SAFETY: the child runs `run` alone, which makes nothing but system calls on what was prepared.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        run(plan, &mut shell, waiting.as_raw_fd(), barrier.as_raw_fd(), reporting.as_raw_fd());
    }
    let error = io::Error::last_os_error();
    set_signal_mask(&before);
    u32::try_from(pid).map(Pid).map_err(|_| error)
}

/// The child's whole life up to the exec.
fn run(plan: &Plan, shell: &mut [*const c_char], waiting: RawFd, barrier: RawFd, reporting: RawFd) -> ! {
    reset_signals();
    // As long as the child itself holds the writing end, the pipe cannot close.
    // SAFETY: the parent's descriptor is a copy of its own; nobody in the child uses this one.
    unsafe { libc::close(barrier) };
    if !wait(waiting) {
        exit();
    }
    let failure = match plan.identity.as_ref().map_or(Ok(()), assume) {
        Ok(()) => Failure { step: Step::Exec, errno: exec(plan, shell) },
        Err(errno) => Failure { step: Step::Identity, errno },
    };
    let report = failure.encode();
    // SAFETY: `report` is valid for its length. Nobody can be told if this fails.
    unsafe { libc::write(reporting, report.as_ptr().cast(), report.len()) };
    exit();
}

/// Waits at the barrier; `false` if it closes instead of opening.
fn wait(waiting: RawFd) -> bool {
    let mut byte = 0_u8;
    loop {
        // SAFETY: `byte` has room for the one byte.
        let got = unsafe { libc::read(waiting, (&raw mut byte).cast(), 1) };
        match got {
            1 => return byte == GO,
            -1 if errno() == libc::EINTR => {}
            _ => return false,
        }
    }
}

/// Takes on the identity for good: groups first, since that needs the privileges that the user's id takes away.
///
/// By system calls: the C library's functions would have every other thread follow, and here there is none.
fn assume(identity: &Identity) -> Result<(), i32> {
    let (uid, gid, groups) = (identity.uid, identity.gid, &identity.groups);
    // SAFETY: `groups` is valid for its length.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: takes three integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: takes three integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Tries one path after the other; returns the error's number where none can be run.
///
/// Which errors go on to the next path is as in `execvp` (glibc, posix/execvpe.c).
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
            // Remembered, as a better answer than "not found" if no other path can be run.
            libc::EACCES => result = error,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return error,
        }
    }
    result
}

fn execve(path: &CStr, arguments: &[*const c_char], environment: &[*const c_char]) -> i32 {
    // SAFETY: the path is a C string, and both arrays are ended by a null pointer and point to C strings that live.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    errno()
}

/// Gives every signal that memtrace handles its default action again, and unblocks all. What memtrace was itself
/// started to ignore (by `nohup`, say) stays ignored; SIGPIPE the Rust runtime has set to be ignored.
fn reset_signals() {
    for signal in 1..=SIGNALS {
        let mut action = no_action();
        // SAFETY: `action` is valid; a null pointer asks for the present action without changing it.
        let known = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } == 0;
        if known && (action.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE) {
            let default = no_action();
            // SAFETY: `default` is valid: all zeros are the default action without flags.
            unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
        }
    }
    // SAFETY: sigset_t is plain data, for which all zeros are the empty set.
    set_signal_mask(&unsafe { mem::zeroed() });
}

fn no_action() -> libc::sigaction {
    // SAFETY: sigaction is plain data, for which all zeros are a value.
    unsafe { mem::zeroed() }
}

/// Blocks every signal and returns which were blocked before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data, for which all zeros are the empty set.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    // SAFETY: `all` is valid.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are valid.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn set_signal_mask(mask: &libc::sigset_t) {
    // SAFETY: the mask is valid; a null pointer says that the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(mask), ptr::null_mut()) };
}

fn check(result: libc::c_long) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn exit() -> ! {
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(NOT_STARTED) }
}
