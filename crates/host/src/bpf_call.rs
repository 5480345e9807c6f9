//! The bpf(2) system call, in memtrace and in its workers.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya_obj::generated::{bpf_attr, bpf_cmd};

/// Returns attributes with all members 0.
pub(crate) fn zeroed_attributes() -> bpf_attr {
    // SAFETY: the members of all variants are integers, so 0 is valid.
    unsafe { std::mem::zeroed() }
}

/// Makes the call.
///
/// # Safety
///
/// Each address in `attributes` that the command accesses must be valid for the length in `attributes`.
pub(crate) unsafe fn bpf(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<i64> {
    let size = size_of::<bpf_attr>();
    // SAFETY: the caller guarantees the addresses, and `attributes` is borrowed. The kernel accepts attributes larger
    // than its own if the rest is 0 (`bpf_check_uarg_tail_zero`, kernel/bpf/syscall.c).
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, &raw mut *attributes, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Runs a raw tracepoint program with one argument, once (`BPF_PROG_TEST_RUN`).
pub(crate) fn run_program(program: BorrowedFd<'_>, argument: u64) -> io::Result<()> {
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let run = unsafe { &mut attributes.test };
    // The kernel wants all arguments that the program could read (`bpf_prog_test_run_raw_tp`, net/bpf/test_run.c).
    let mut arguments = [0_u64; 12];
    arguments[0] = argument;
    run.prog_fd = program.as_raw_fd().cast_unsigned();
    run.ctx_in = arguments.as_ptr() as u64;
    run.ctx_size_in = size_of_val(&arguments) as u32;
    // SAFETY: address and length of the arguments belong to an array that lives until the call has returned.
    unsafe { bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attributes) }.map(drop)
}
