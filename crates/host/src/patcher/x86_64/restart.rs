//! System calls that a stop interrupts.
//!
//! The kernel restarts most calls by itself when a thread continues after a stop (`arch_do_signal_or_restart`,
//! arch/x86/kernel/signal.c). A few return `EINTR` to the program after any stop (signal(7), "Interruption of system calls and
//! library functions by stop signals"). The patcher lets them run again, so that programs without a handler for `EINTR` do not
//! fail. Their timeouts begin again.
//!
//! The kernel continues some calls with a timeout by another call, restart_syscall(2). If a seccomp filter does not permit that
//! call, the patcher lets the original call run again instead.

use super::ptrace::Registers;
use crate::procfs::TaskStatus;

/// Instruction `syscall`.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Length of the instruction.
const LENGTH: u64 = 2;
/// Value of `orig_rax` outside of a system call.
pub(super) const NO_CALL: u64 = u64::MAX;

/// `__NR_io_pgetevents` (arch/x86/entry/syscalls/syscall_64.tbl).
const IO_PGETEVENTS: i64 = 333;

/// Calls that return `EINTR` after a stop. A call that returns it has had no effect.
const NOT_RESTARTED: [i64; 21] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
    // This call returns `EINTR` only if it has submitted no requests. Otherwise it returns the number of submitted
    // requests (`io_uring_enter`, io_uring/io_uring.c).
    libc::SYS_io_uring_enter,
    // Reads and writes of sockets with a timeout, as recvfrom and sendto do them (`sock_intr_errno`,
    // include/net/sock.h).
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Return values that make the kernel restart a call: `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND` and
/// `ERESTART_RESTARTBLOCK` (include/linux/errno.h).
const RESTARTED: [i64; 4] = [-512, -513, -514, CONTINUED];
/// `ERESTART_RESTARTBLOCK`: the kernel restarts the call by restart_syscall(2).
const CONTINUED: i64 = -516;

/// Returns true if the thread has just got `EINTR` from a call that can run again. Whether it should, depends on its pending
/// signals.
pub(super) fn has_interrupted_call(registers: &Registers) -> bool {
    registers.rax.cast_signed() == -i64::from(libc::EINTR) && NOT_RESTARTED.contains(&registers.orig_rax.cast_signed())
}

/// Returns true if the kernel continues the thread's call by restart_syscall(2), such as poll(2), when the thread goes on.
pub(super) fn is_continued(registers: &Registers) -> bool {
    let number = registers.orig_rax.cast_signed();
    // After a second stop, `orig_rax` is the number of restart_syscall. The filters have permitted this call before.
    registers.rax.cast_signed() == CONTINUED && number >= 0 && number != libc::SYS_restart_syscall
}

/// Returns the registers with which an interrupted or continued call runs again; `None` if a signal interrupts it anyway. `code`:
/// the two bytes before the instruction pointer.
///
/// Only signals with a handler interrupt a call: under ptrace, even ignored signals are queued.
pub(super) fn rewound(registers: &Registers, code: [u8; 2], status: &TaskStatus) -> Option<Registers> {
    let due = (status.pending | status.shared_pending) & !status.blocked & status.caught;
    let can_run = has_interrupted_call(registers) || is_continued(registers);
    (can_run && code == SYSCALL && due == 0).then(|| again(registers, NO_CALL))
}

/// Returns the registers with which a thread continues without the kernel's logic of restarts.
pub(super) fn without_restart(registers: &Registers) -> Registers {
    let is_restarted = registers.orig_rax.cast_signed() >= 0 && RESTARTED.contains(&registers.rax.cast_signed());
    if is_restarted { again(registers, registers.orig_rax) } else { *registers }
}

fn again(registers: &Registers, orig_rax: u64) -> Registers {
    let rip = registers.rip.wrapping_sub(LENGTH);
    Registers { rax: registers.orig_rax, rip, orig_rax, ..*registers }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> TaskStatus {
        TaskStatus {
            state: b't',
            tracer: 1,
            users: [0; 4],
            threads: 1,
            pending: 0,
            shared_pending: 0,
            blocked: 0,
            caught: 0,
            seccomp: 0,
            has_shadow_stack: false,
            dumps_core: false,
            waits: 0,
        }
    }

    /// Registers of a thread after the call `number` has returned `result`.
    fn after(number: u64, result: i64) -> Registers {
        Registers { orig_rax: number, rax: result.cast_unsigned(), rip: 0x1002, rdi: 7, ..Registers::default() }
    }

    #[test]
    fn calls_that_return_eintr_after_a_stop_run_again() {
        // Numbers of the calls: arch/x86/entry/syscalls/syscall_64.tbl.
        for number in [0, 1, 19, 20, 43, 44, 45, 46, 47, 65, 128, 208, 220, 232, 281, 288, 299, 307, 333, 426, 441] {
            let expected = Registers { rax: number, rip: 0x1000, orig_rax: u64::MAX, ..after(number, -4) };
            assert_eq!(rewound(&after(number, -4), SYSCALL, &status()), Some(expected), "{number}");
        }
        // nanosleep, poll, close, connect.
        for number in [35, 7, 3, 42] {
            assert_eq!(rewound(&after(number, -4), SYSCALL, &status()), None, "{number}");
        }
        assert_eq!(rewound(&after(232, 0), SYSCALL, &status()), None, "no error");
        assert_eq!(rewound(&after(232, -11), SYSCALL, &status()), None, "another error");
        assert_eq!(rewound(&after(u64::MAX, -4), SYSCALL, &status()), None, "no call");
        assert_eq!(rewound(&after(232, -4), [0xcd, 0x80], &status()), None, "int $0x80 has other numbers");
    }

    #[test]
    fn call_does_not_run_again_before_a_handler() {
        let rewound = |status| rewound(&after(232, -4), SYSCALL, &status).is_some();
        let usr1 = 1 << (libc::SIGUSR1 - 1);
        let caught = TaskStatus { caught: usr1, ..status() };
        assert!(!rewound(TaskStatus { pending: usr1, ..caught }));
        assert!(!rewound(TaskStatus { shared_pending: usr1, ..caught }));
        assert!(rewound(TaskStatus { pending: usr1, blocked: usr1, ..caught }));
        assert!(rewound(TaskStatus { pending: usr1, ..status() }), "it is ignored");
        assert!(rewound(TaskStatus { pending: usr1 << 1, ..caught }));
    }

    #[test]
    fn continued_calls_run_again_from_their_start() {
        // poll.
        let registers = after(7, -516);
        assert!(is_continued(&registers) && !has_interrupted_call(&registers));
        let expected = Registers { rax: 7, rip: 0x1000, orig_rax: u64::MAX, ..registers };
        assert_eq!(rewound(&registers, SYSCALL, &status()), Some(expected));
        let due = TaskStatus { pending: 1, caught: 1, ..status() };
        assert_eq!(rewound(&registers, SYSCALL, &due), None, "a handler makes the call fail");
        for registers in [after(219, -516), after(u64::MAX, -516), after(7, -514)] {
            assert!(!is_continued(&registers));
            assert_eq!(rewound(&registers, SYSCALL, &status()), None);
        }
    }

    #[test]
    fn restarts_of_the_kernel_need_no_kernel() {
        for result in [-512, -513, -514, -516] {
            let expected = Registers { rax: 35, rip: 0x1000, ..after(35, result) };
            assert_eq!(without_restart(&after(35, result)), expected, "{result}");
        }
        for registers in [after(35, 0), after(35, -4), after(35, -515), after(u64::MAX, -512)] {
            assert_eq!(without_restart(&registers), registers);
        }
    }
}
