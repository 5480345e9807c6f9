//! Requests of ptrace(2), and waits for traced threads.
//!
//! All requests but [`seize`] and [`interrupt`] need a thread that has stopped. They fail with `ESRCH` if the thread was killed.

use std::io;
use std::mem;
use std::ptr;

use libc::{c_int, c_uint, c_void};

/// Thread id, as ptrace(2) and waitpid(2) take it.
pub(super) type ThreadId = c_int;

/// `PTRACE_EVENT_STOP`: the event of a thread that [`interrupt`] or a stop signal has stopped (include/uapi/linux/ptrace.h).
const EVENT_STOP: c_int = 128;
/// Signal number of a stop at a system call, with `PTRACE_O_TRACESYSGOOD`.
const SYSTEM_CALL: c_int = libc::SIGTRAP | 0x80;
/// `PTRACE_SECCOMP_GET_FILTER` (include/uapi/linux/ptrace.h).
const SECCOMP_GET_FILTER: c_uint = 0x420c;
/// Note type of the extended state of the processor (include/uapi/linux/elf.h).
const NT_X86_XSTATE: usize = 0x202;
/// Size of the kernel's set of signals, in bytes.
const SIGNALS: usize = 8;
/// Maximum number of instructions of a seccomp filter (`BPF_MAXINSNS`, include/uapi/linux/bpf_common.h).
const MAX_INSTRUCTIONS: usize = 4096;

/// General registers (`user_regs_struct`, arch/x86/include/asm/user_64.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Registers {
    pub(super) r15: u64,
    pub(super) r14: u64,
    pub(super) r13: u64,
    pub(super) r12: u64,
    pub(super) rbp: u64,
    pub(super) rbx: u64,
    pub(super) r11: u64,
    pub(super) r10: u64,
    pub(super) r9: u64,
    pub(super) r8: u64,
    pub(super) rax: u64,
    pub(super) rcx: u64,
    pub(super) rdx: u64,
    pub(super) rsi: u64,
    pub(super) rdi: u64,
    /// Number of the interrupted system call; -1 if there is none.
    pub(super) orig_rax: u64,
    pub(super) rip: u64,
    pub(super) cs: u64,
    pub(super) eflags: u64,
    pub(super) rsp: u64,
    pub(super) ss: u64,
    pub(super) fs_base: u64,
    pub(super) gs_base: u64,
    pub(super) ds: u64,
    pub(super) es: u64,
    pub(super) fs: u64,
    pub(super) gs: u64,
}

const _: () = assert!(size_of::<Registers>() == 27 * 8);

/// Instruction of a seccomp filter (`sock_filter`, include/uapi/linux/filter.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct FilterInstruction {
    pub(super) code: u16,
    pub(super) if_true: u8,
    pub(super) if_false: u8,
    pub(super) operand: u32,
}

/// Change of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The thread has ended.
    Ended,
    /// The thread has stopped because of an interruption or a stop signal.
    Stopped,
    /// It has stopped at a system call.
    Call,
    /// It has stopped before the delivery of a signal.
    Signal(c_int),
    /// It has stopped for another reason.
    Other,
}

impl Change {
    /// Returns the change that a status of waitpid(2) means.
    pub(super) fn of(status: c_int) -> Self {
        if !libc::WIFSTOPPED(status) {
            return Self::Ended;
        }
        match (status >> 16, libc::WSTOPSIG(status)) {
            (EVENT_STOP, _) => Self::Stopped,
            (0, SYSTEM_CALL) => Self::Call,
            (0, signal) => Self::Signal(signal),
            _ => Self::Other,
        }
    }

    /// Returns the signal that the thread gets when it continues.
    pub(super) const fn passed_signal(self) -> c_int {
        match self {
            Self::Signal(signal) => signal,
            _ => 0,
        }
    }
}

/// Stop at a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStop {
    /// Before the call, with its number.
    Entry(u64),
    Exit,
    Other,
}

/// Traces a thread. The thread is not stopped.
pub(super) fn seize(tid: ThreadId) -> io::Result<()> {
    // PTRACE_O_SUSPEND_SECCOMP is not set: it would end with the tracer, and then a filter would kill a process that is in a
    // system call for the tracer.
    plain(libc::PTRACE_SEIZE, tid, libc::PTRACE_O_TRACESYSGOOD.cast_unsigned() as usize)
}

/// Asks a traced thread to stop.
pub(super) fn interrupt(tid: ThreadId) -> io::Result<()> {
    plain(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Continues a thread, with the delivery of `signal` unless it is 0.
pub(super) fn resume(tid: ThreadId, signal: c_int) -> io::Result<()> {
    plain(libc::PTRACE_CONT, tid, signal.cast_unsigned() as usize)
}

/// Continues a thread up to the start or the end of a system call.
pub(super) fn resume_to_call(tid: ThreadId, signal: c_int) -> io::Result<()> {
    plain(libc::PTRACE_SYSCALL, tid, signal.cast_unsigned() as usize)
}

/// Ends the tracing of a thread, and continues it.
pub(super) fn detach(tid: ThreadId, signal: c_int) -> io::Result<()> {
    plain(libc::PTRACE_DETACH, tid, signal.cast_unsigned() as usize)
}

pub(super) fn registers(tid: ThreadId) -> io::Result<Registers> {
    let mut registers = Registers::default();
    // SAFETY: the kernel writes a `user_regs_struct`, which has the layout of `Registers`.
    unsafe { call(libc::PTRACE_GETREGS, tid, 0, (&raw mut registers).cast()) }?;
    Ok(registers)
}

pub(super) fn set_registers(tid: ThreadId, registers: &Registers) -> io::Result<()> {
    // SAFETY: the kernel reads a `user_regs_struct`, which has the layout of `Registers`.
    unsafe { call(libc::PTRACE_SETREGS, tid, 0, ptr::from_ref(registers).cast_mut().cast()) }.map(drop)
}

/// Returns the blocked signals. In a call such as ppoll(2), these are the signals that the thread blocks after the call.
pub(super) fn signal_mask(tid: ThreadId) -> io::Result<u64> {
    let mut mask = 0_u64;
    // SAFETY: the kernel writes a set of signals with the size of `mask`.
    unsafe { call(libc::PTRACE_GETSIGMASK, tid, SIGNALS, (&raw mut mask).cast()) }?;
    Ok(mask)
}

pub(super) fn set_signal_mask(tid: ThreadId, mut mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads a set of signals with the size of `mask`.
    unsafe { call(libc::PTRACE_SETSIGMASK, tid, SIGNALS, (&raw mut mask).cast()) }.map(drop)
}

/// Reads the state of the processor besides the general registers, in the layout of XSAVE. Returns its length.
pub(super) fn extended_state(tid: ThreadId, state: &mut [u8]) -> io::Result<usize> {
    let mut range = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    // SAFETY: the range belongs to `state`; the kernel writes at most its length, and the length that it has written.
    unsafe { call(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, (&raw mut range).cast()) }?;
    Ok(range.iov_len)
}

/// Returns the kind of a stop at a system call.
pub(super) fn call_stop(tid: ThreadId) -> io::Result<CallStop> {
    // `ptrace_syscall_info`: kind in the first byte, number of the call in the fourth word.
    let mut info = [0_u64; 11];
    // SAFETY: the kernel writes at most the given size, which is the size of `info`.
    unsafe { call(libc::PTRACE_GET_SYSCALL_INFO, tid, size_of_val(&info), (&raw mut info).cast()) }?;
    let [kind, _, _, number, ..] = info;
    Ok(match kind.to_le_bytes()[0] {
        libc::PTRACE_SYSCALL_INFO_ENTRY => CallStop::Entry(number),
        libc::PTRACE_SYSCALL_INFO_EXIT => CallStop::Exit,
        _ => CallStop::Other,
    })
}

/// Returns the address of the thread's `struct rseq`; 0 if there is none, or if the kernel has no restartable sequences.
pub(super) fn rseq_address(tid: ThreadId) -> io::Result<u64> {
    // `ptrace_rseq_configuration`: the first word is the address.
    let mut configuration = [0_u64; 3];
    let (size, data) = (size_of_val(&configuration), (&raw mut configuration).cast());
    // SAFETY: the kernel writes at most the given size, which is the size of `configuration`.
    match unsafe { call(libc::PTRACE_GET_RSEQ_CONFIGURATION, tid, size, data) } {
        Ok(_) => Ok(configuration[0]),
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Returns true if system calls of the thread become signals (prctl(2), `PR_SET_SYSCALL_USER_DISPATCH`).
pub(super) fn dispatches_calls(tid: ThreadId) -> io::Result<bool> {
    // `ptrace_sud_config`: the first word is the mode, 0 for off.
    let mut configuration = [0_u64; 4];
    let (size, data) = (size_of_val(&configuration), (&raw mut configuration).cast());
    // SAFETY: the kernel writes at most the given size, which is the size of `configuration`.
    match unsafe { call(libc::PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, size, data) } {
        Ok(_) => Ok(configuration[0] != 0),
        // Linux before 6.4 has no such request.
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns a seccomp filter of the thread; `None` if it has at most `index` of them. This needs CAP_SYS_ADMIN, and no filter of
/// the tracer.
pub(super) fn seccomp_filter(tid: ThreadId, index: usize) -> io::Result<Option<Vec<FilterInstruction>>> {
    // SAFETY: without a buffer, the kernel only returns the number of instructions.
    let length = match unsafe { call(SECCOMP_GET_FILTER, tid, index, ptr::null_mut()) } {
        Ok(length) if length <= MAX_INSTRUCTIONS => length,
        Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut filter = vec![FilterInstruction::default(); length];
    // SAFETY: the kernel writes the whole filter, which has this length: a filter never changes, and later filters have higher
    // indexes.
    unsafe { call(SECCOMP_GET_FILTER, tid, index, filter.as_mut_ptr().cast()) }?;
    Ok(Some(filter))
}

/// Waits for a change of any traced thread, and returns its status as of waitpid(2). With [`libc::WNOHANG`], returns `None` if there
/// is no change; without it, only if the thread was killed in between.
///
/// A stop before the delivery of a signal is not taken, so it is returned again until the thread continues. When this process
/// ends, the kernel delivers a signal only if no wait has taken its stop (`wait_task_stopped`, kernel/exit.c).
///
/// # Errors
///
/// [`io::ErrorKind::Interrupted`] after a signal; `ECHILD` if no thread is traced.
pub(super) fn wait(flags: c_int) -> io::Result<Option<(ThreadId, c_int)>> {
    // SAFETY: siginfo_t is plain data, and all zeros are a value.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    let options = flags | libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::WNOWAIT;
    // SAFETY: `info` is valid for the length of the call.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid(2) has set the fields of a child, or left zeros.
    let tid = unsafe { info.si_pid() };
    if tid == 0 {
        return Ok(None);
    }
    // SAFETY: waitid(2) has set the fields of a child.
    let status = stop_status(unsafe { info.si_status() });
    if info.si_code == libc::CLD_TRAPPED && matches!(Change::of(status), Change::Signal(_)) {
        return Ok(Some((tid, status)));
    }
    Ok(take_change(tid))
}

/// Returns the status of waitpid(2) for the code of a stop that waitid(2) returns.
const fn stop_status(code: c_int) -> c_int {
    code << 8 | 0x7f
}

/// Takes the change of a thread that [`wait`] has found; `None` if the thread was killed in between.
fn take_change(tid: ThreadId) -> Option<(ThreadId, c_int)> {
    let mut status = 0;
    // SAFETY: `status` is valid for the length of the call.
    let taken = unsafe { libc::waitpid(tid, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (taken == tid).then_some((tid, status))
}

/// Calls ptrace(2) with a request that takes a number.
fn plain(request: c_uint, tid: ThreadId, data: usize) -> io::Result<()> {
    // SAFETY: the callers pass requests that take numbers, and write nothing.
    unsafe { call(request, tid, 0, ptr::without_provenance_mut(data)) }.map(drop)
}

/// # Safety
///
/// `data` must be valid for `request`, with the size `address` if the request takes a size.
unsafe fn call(request: c_uint, tid: ThreadId, address: usize, data: *mut c_void) -> io::Result<usize> {
    let (request, tid) = (libc::c_long::from(request), libc::c_long::from(tid));
    // SAFETY: the caller guarantees that `data` is valid.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, tid, address, data) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_those_of_wait_statuses() {
        // The statuses of waitpid(2): exit code or signal; for a stop 0x7f, the signal in the next byte, then the event.
        for (status, change) in [
            (0x0100, Change::Ended),
            (0x0009, Change::Ended),
            (0x80_057f, Change::Stopped),
            (0x80_137f, Change::Stopped),
            (0x857f, Change::Call),
            (0x0a7f, Change::Signal(libc::SIGUSR1)),
            (0x057f, Change::Signal(libc::SIGTRAP)),
            (0x04_057f, Change::Other),
        ] {
            assert_eq!(Change::of(status), change, "{status:#x}");
        }
        assert_eq!(Change::of(stop_status(libc::SIGUSR1)), Change::Signal(libc::SIGUSR1));
        assert_eq!(Change::of(stop_status(0x80 << 8 | libc::SIGTRAP)), Change::Stopped);
        assert_eq!(Change::Signal(10).passed_signal(), 10);
        assert_eq!(Change::Stopped.passed_signal(), 0);
    }
}
