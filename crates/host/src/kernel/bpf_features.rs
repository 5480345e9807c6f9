//! BPF features of the kernel, detected by a trial.

use std::io;
use std::os::fd::AsFd as _;

use aya_obj::generated::{BPF_ALU64, BPF_EXIT, BPF_JMP, BPF_K, BPF_MOV, bpf_insn};

use super::bpf_syscall::{self, LinkPoints, ProgramCode};

/// Returns true if uprobe_multi links can be used for one process and for all.
///
/// Linux has such links since 6.6. Before 6.10, a link for a process ran the program for one thread only ("bpf: fix
/// multi-uprobe PID filtering logic"). Kernels with this fix refuse a negative pid before they look at the file.
pub(super) fn has_uprobe_multi() -> bool {
    let instructions = [instruction(BPF_ALU64 | BPF_MOV | BPF_K), instruction(BPF_JMP | BPF_EXIT)];
    let code = ProgramCode { name: "memtrace_trial", license: c"GPL", instructions: &instructions, info: None };
    let Ok(program) = bpf_syscall::load_program(&code, &mut []) else { return false };
    // A directory cannot be probed, so no link is created.
    let refusal = |pid: i32| {
        let points = LinkPoints { offsets: &[0], cookies: &[0], semaphores: &[0] };
        let link = bpf_syscall::create_link(program.as_fd(), c"/", points, pid.cast_unsigned(), false);
        link.err().as_ref().and_then(io::Error::raw_os_error)
    };
    refusal(0) == Some(libc::EBADF) && refusal(-1) == Some(libc::EINVAL)
}

/// Instruction on register 0 without an operand.
fn instruction(code: u32) -> bpf_insn {
    bpf_insn { code: code as u8, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm: 0 }
}
