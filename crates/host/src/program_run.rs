//! Runs a BPF program of memtrace once (`BPF_PROG_TEST_RUN`), in memtrace or in one of its workers.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya_obj::generated::{bpf_attr, bpf_cmd};

/// Runs a raw tracepoint program with one argument.
pub(crate) fn run(program: BorrowedFd<'_>, argument: u64) -> io::Result<()> {
    // SAFETY: the members of all variants are integers, for which 0 is valid.
    let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the variant consists of integers, for which any bytes are valid.
    let run = unsafe { &mut attributes.test };
    // The kernel wants all arguments that the program could read (`bpf_prog_test_run_raw_tp`, net/bpf/test_run.c).
    let mut arguments = [0_u64; 12];
    arguments[0] = argument;
    run.prog_fd = program.as_raw_fd().cast_unsigned();
    run.ctx_in = arguments.as_ptr() as u64;
    run.ctx_size_in = size_of_val(&arguments) as u32;
    let command = bpf_cmd::BPF_PROG_TEST_RUN as libc::c_long;
    // SAFETY: address and length of the arguments belong to an array that lives until the call has returned.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attributes, size_of::<bpf_attr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
