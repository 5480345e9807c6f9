//! System calls in the main thread of a process.
//!
//! The thread runs a `syscall` instruction of libc with other registers, between two stops at the start and the end of the call.
//! It is never single-stepped, because the trap flag outlives the tracer. From the first change of its registers on, a
//! [`SignalFrame`] restores the thread without the patcher: the instructions after the call return to `rt_sigreturn`.
//! The order of the steps therefore leaves a thread that runs on, even if the patcher is killed between two of them:
//!
//! 1. Write the frame. The registers still have the values of the program.
//! 2. Set the registers, then block all signals. A signal in between runs its handler below the frame.
//! 3. Make the calls. A call that was begun ends, and the thread returns to the frame.
//! 4. Interrupt the thread, reset its signal mask, then its registers. The interruption makes the kernel look for a system call
//!    that it has to restart. It does not look for one on the way back from a call (`arch_do_signal_or_restart`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use memtrace_object::overlay::layout::MEMFD_NAME;

use super::fault::{self, FaultPoint};
use super::ptrace::{self, CallStop, Change, Registers, ThreadId};
use super::restart::{self, NO_CALL};
use super::seccomp::{self, Call};
use super::signal_frame::{ProcessorState, SignalFrame};
use super::sites::hexadecimal;
use super::threads::Stop;
use crate::patcher::refusal::PatchRefusal;

/// Code segment of 64-bit code (`__USER_CS`, arch/x86/include/asm/segment.h).
const USER_CODE: u64 = 0x33;
/// Segment of its data and stack (`__USER_DS`).
const USER_DATA: u64 = 0x2b;
/// Flag of single-stepping.
const TRAP_FLAG: u64 = 1 << 8;
/// Maximum length of the processor state; the largest processors have 11 KiB.
const MAX_STATE: usize = 64 << 10;
/// Mask that blocks all signals, of which the kernel takes away `SIGKILL` and `SIGSTOP`.
const ALL_SIGNALS: u64 = u64::MAX;
/// Lowest result of a system call that is an error (`MAX_ERRNO`, include/linux/err.h).
const LOWEST_ERROR: i64 = -4095;
/// Maximum length of a restartable sequence's description (`struct rseq_cs`, include/uapi/linux/rseq.h).
const SEQUENCE: usize = 32;
/// Offset of the address of the present sequence in `struct rseq`.
const PRESENT_SEQUENCE: u64 = 8;

/// Addresses of instructions in the process's libc.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallGadgets {
    pub(super) call: u64,
    pub(super) sigreturn: u64,
}

/// Main thread of a process, which is prepared for calls.
#[derive(Debug)]
pub(super) struct RemoteThread {
    tid: ThreadId,
    gadgets: CallGadgets,
    /// Registers that the thread gets at the end.
    original: Registers,
    /// Signal mask that the thread gets at the end.
    mask: u64,
    frame: SignalFrame,
    /// Bytes of the stack that the frame has replaced.
    replaced: Vec<u8>,
    is_masked: bool,
}

impl RemoteThread {
    /// Prepares the main thread, which has stopped. `has_room` gets a stack pointer and the length of a frame. It returns true if
    /// the stack has room for the frame below the stack pointer. The process is unchanged except for bytes below its stack.
    pub(super) fn prepare(
        stop: &mut Stop<'_>,
        tid: ThreadId,
        gadgets: CallGadgets,
        has_room: impl Fn(u64, u64) -> bool,
    ) -> Result<Self, PatchRefusal> {
        let registers = ptrace::registers(tid).map_err(|_| PatchRefusal::Exiting)?;
        if registers.cs != USER_CODE {
            return Err(PatchRefusal::Bits32);
        }
        // With some other stack segments, the kernel would refuse to set the registers after it has set a part of them.
        if registers.ss != USER_DATA {
            return Err(PatchRefusal::Busy);
        }
        // The program steps through itself, or the thread is in a sequence that the kernel restarts after each stop (rseq).
        if registers.eflags & TRAP_FLAG != 0 || is_in_sequence(tid, registers.rip, stop.memory()?)? {
            return Err(PatchRefusal::Busy);
        }
        // In a call such as epoll_pwait(2), the thread has a temporary mask. The thread loses this mask here, and sets it again
        // if the call runs again.
        let mask = ptrace::signal_mask(tid).map_err(|_| PatchRefusal::Exiting)?;
        let original = match stop.rewound_registers(tid, Some(mask)) {
            Some(rewound) => {
                stop.add_rewound();
                rewound
            }
            None => registers,
        };
        let state = read_state(tid)?;
        fault::point(FaultPoint::RegistersRead);
        let frame = SignalFrame::new(&original, mask, &state, gadgets.sigreturn, MEMFD_NAME);
        let frame = frame.ok_or(PatchRefusal::NoStack)?;
        if !has_room(original.rsp, original.rsp.saturating_sub(frame.start)) {
            return Err(PatchRefusal::NoStack);
        }
        let memory = stop.memory()?;
        check_gadgets(memory, gadgets)?;
        let mut replaced = vec![0; frame.bytes.len()];
        memory.read_exact_at(&mut replaced, frame.start).map_err(|_| PatchRefusal::NoStack)?;
        let mut written = vec![0; frame.bytes.len()];
        let write = memory.write_all_at(&frame.bytes, frame.start);
        let is_written = write.and_then(|()| memory.read_exact_at(&mut written, frame.start)).is_ok();
        fault::point(FaultPoint::FrameWritten);
        let thread = Self { tid, gadgets, original, mask, frame, replaced, is_masked: false };
        if !is_written || written != thread.frame.bytes {
            thread.restore_stack(Some(memory));
            return Err(PatchRefusal::NoStack);
        }
        Ok(thread)
    }

    /// Returns the address of the memfd's name in the process.
    pub(super) const fn name(&self) -> u64 {
        self.frame.name
    }

    /// Makes a call, and returns its result or the number of its error. After a refusal, the thread restores itself, and must not
    /// be used again.
    pub(super) fn call(
        &mut self,
        stop: &mut Stop<'_>,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<Result<u64, i32>, PatchRefusal> {
        let number = number.cast_unsigned();
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rip: self.gadgets.call,
            rsp: self.frame.start,
            rax: number,
            orig_rax: NO_CALL,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.original
        };
        fault::point(FaultPoint::BeforeSetRegs);
        // From here on, only `finish` may end the stop of this thread. If it is not reached, the end of the patcher does it.
        stop.set_running(self.tid);
        ptrace::set_registers(self.tid, &registers).map_err(|_| PatchRefusal::Exiting)?;
        fault::point(FaultPoint::AfterSetRegs);
        if !self.is_masked {
            ptrace::set_signal_mask(self.tid, ALL_SIGNALS).map_err(|_| PatchRefusal::Exiting)?;
            self.is_masked = true;
            fault::point(FaultPoint::AfterMask);
        }
        self.resume_to(stop, CallStop::Entry(number))?;
        fault::point(FaultPoint::SyscallEntry);
        self.resume_to(stop, CallStop::Exit)?;
        fault::point(FaultPoint::SyscallExit);
        let result = ptrace::registers(self.tid).map_err(|_| PatchRefusal::Exiting)?.rax;
        Ok(match result.cast_signed() {
            error @ LOWEST_ERROR..=-1 => Err(i32::try_from(-error).unwrap_or(libc::EINVAL)),
            _ => Ok(result),
        })
    }

    /// Gives the thread its registers and signal mask again, and lets it reach a stop from which it can be released.
    pub(super) fn finish(self, stop: &mut Stop<'_>) -> Result<(), PatchRefusal> {
        // The requests fail only if the thread was killed.
        let gone = |_| PatchRefusal::Exiting;
        ptrace::interrupt(self.tid).map_err(gone)?;
        ptrace::set_signal_mask(self.tid, self.mask).map_err(gone)?;
        fault::point(FaultPoint::Unmasked);
        ptrace::set_registers(self.tid, &self.original).map_err(gone)?;
        fault::point(FaultPoint::RegsRestored);
        self.restore_stack(stop.opened_memory());
        ptrace::resume(self.tid, 0).map_err(gone)?;
        fault::point(FaultPoint::Continued);
        stop.wait_for_stop(self.tid)
    }

    /// Writes the bytes back that the frame has replaced. They are below the red zone, so this stack does not need them. But
    /// another stack could lie inside this stack and contain them.
    fn restore_stack(&self, memory: Option<&File>) {
        let restored = memory.map(|memory| memory.write_all_at(&self.replaced, self.frame.start));
        if let Some(Err(error)) = restored {
            log::debug!("the bytes below the stack stay: {error}");
        }
    }

    /// Continues the thread to the start or the end of a call. A stop by a signal in between is only a pause, because only
    /// `SIGSTOP` is not blocked.
    fn resume_to(&self, stop: &mut Stop<'_>, expected: CallStop) -> Result<(), PatchRefusal> {
        let mut signal = 0;
        loop {
            ptrace::resume_to_call(self.tid, signal).map_err(|_| PatchRefusal::Exiting)?;
            let change = stop.wait_for(self.tid)?;
            match change {
                Change::Ended => return Err(PatchRefusal::Exiting),
                Change::Call => {
                    let reached = ptrace::call_stop(self.tid).map_err(|_| PatchRefusal::Exiting)?;
                    return if reached == expected { Ok(()) } else { Err(PatchRefusal::Busy) };
                }
                Change::Stopped | Change::Signal(_) | Change::Other => signal = change.passed_signal(),
            }
        }
    }
}

/// Returns a refusal if seccomp does not permit a call of a thread that has stopped, or if the system calls of the thread become
/// signals. `mode`: mode of seccomp.
pub(super) fn check_calls(tid: ThreadId, mode: u32, calls: &[Call], gadgets: CallGadgets) -> Result<(), PatchRefusal> {
    let unreadable = |error: io::Error| PatchRefusal::Seccomp(format!("its filters cannot be read: {error}"));
    if ptrace::dispatches_calls(tid).map_err(unreadable)? {
        return Err(PatchRefusal::Seccomp(String::from("its system calls become signals (Syscall User Dispatch)")));
    }
    match mode {
        seccomp::NONE => return Ok(()),
        seccomp::FILTERS => {}
        _ => return Err(PatchRefusal::Seccomp(String::from("the strict mode"))),
    }
    let address = gadgets.call.wrapping_add(restart::SYSCALL.len() as u64);
    match seccomp::find_refused(tid, calls, address).map_err(unreadable)? {
        None => Ok(()),
        Some(call) => Err(PatchRefusal::Seccomp(format!("a filter does not permit {}", call.name))),
    }
}

/// Reads the processor state of a thread.
fn read_state(tid: ThreadId) -> Result<ProcessorState, PatchRefusal> {
    let mut state = vec![0; MAX_STATE];
    let length = ptrace::extended_state(tid, &mut state).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => PatchRefusal::Exiting,
        _ => PatchRefusal::Permission(format!("the state of its processor: {error}")),
    })?;
    // A full buffer could lack the end.
    if length >= MAX_STATE {
        return Err(PatchRefusal::Busy);
    }
    state.truncate(length);
    ProcessorState::new(state).ok_or(PatchRefusal::Busy)
}

/// Returns true if the thread is in a restartable sequence. The kernel would forget the sequence while the thread is elsewhere, and
/// would not restart it (`rseq_ip_fixup`, kernel/rseq.c).
fn is_in_sequence(tid: ThreadId, rip: u64, memory: &File) -> Result<bool, PatchRefusal> {
    let rseq = ptrace::rseq_address(tid).map_err(|_| PatchRefusal::Exiting)?;
    if rseq == 0 {
        return Ok(false);
    }
    let mut present = [0; 8];
    let mut sequence = [0; SEQUENCE];
    let read = |bytes: &mut [u8], address: u64| memory.read_exact_at(bytes, address);
    read(&mut present, rseq.saturating_add(PRESENT_SEQUENCE)).map_err(|_| PatchRefusal::Busy)?;
    let present = u64::from_le_bytes(present);
    if present == 0 {
        return Ok(false);
    }
    read(&mut sequence, present).map_err(|_| PatchRefusal::Busy)?;
    // Version and flags, then start, length and address of the restart.
    let [_, start, length, _] = words(sequence);
    Ok(rip.wrapping_sub(start) < length)
}

fn words(bytes: [u8; SEQUENCE]) -> [u64; 4] {
    std::array::from_fn(|index| bytes[8 * index..].first_chunk().copied().map_or(0, u64::from_le_bytes))
}

/// Compares the instructions that the thread is to execute with the expected ones. A breakpoint in them would kill it.
fn check_gadgets(memory: &File, gadgets: CallGadgets) -> Result<(), PatchRefusal> {
    let changed = |function: &str, bytes: &[u8]| PatchRefusal::Foreign {
        function: function.to_owned(),
        bytes: hexadecimal(bytes),
    };
    let mut call = [0; 11];
    memory.read_exact_at(&mut call, gadgets.call).map_err(|_| PatchRefusal::ExecInProgress)?;
    // syscall; cmp $-4095,%rax; jae …; ret
    if !matches!(call, [0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, _, 0xc3]) {
        return Err(changed("syscall", &call));
    }
    let mut sigreturn = [0; 9];
    memory.read_exact_at(&mut sigreturn, gadgets.sigreturn).map_err(|_| PatchRefusal::ExecInProgress)?;
    // mov $15,%rax; syscall
    if sigreturn != [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05] {
        return Err(changed("__restore_rt", &sigreturn));
    }
    Ok(())
}
