//! Features of the kernel's BPF, detected by trials.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya_obj::generated::{
    BPF_ALU64, BPF_ATOMIC, BPF_CALL, BPF_DW, BPF_EXIT, BPF_JMP, BPF_K, BPF_MEM, BPF_MOV, BPF_ST, BPF_STX, BPF_XCHG,
    bpf_func_id, bpf_insn,
};

use super::bpf_syscall::{self, LinkPoints, ProgramCode};

/// Returns true if programs can exchange words atomically (Linux 5.12).
pub(super) fn has_atomic_exchange() -> bool {
    let on_stack = |code, register, value: u32| {
        let mut instruction = instruction(code);
        instruction.set_dst_reg(FRAME);
        instruction.set_src_reg(register);
        (instruction.off, instruction.imm) = (-8, value.cast_signed());
        instruction
    };
    let instructions = [
        on_stack(BPF_ST | BPF_MEM | BPF_DW, 0, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K),
        on_stack(BPF_STX | BPF_ATOMIC | BPF_DW, 0, BPF_XCHG),
        instruction(BPF_JMP | BPF_EXIT),
    ];
    load(&instructions, false).is_ok()
}

/// Returns true if programs can read their BPF cookie (`bpf_get_attach_cookie`, Linux 5.15).
pub(super) fn has_attach_cookie() -> bool {
    has_helper(bpf_func_id::BPF_FUNC_get_attach_cookie)
}

/// Returns true if programs at probes may call `helper`, which must accept a context as its only argument.
fn has_helper(helper: bpf_func_id) -> bool {
    let mut call = instruction(BPF_JMP | BPF_CALL);
    call.imm = helper as i32;
    load(&[call, instruction(BPF_JMP | BPF_EXIT)], false).is_ok()
}

/// Frame pointer: the end of a program's stack.
const FRAME: u8 = 10;

fn load(instructions: &[bpf_insn], multi: bool) -> io::Result<OwnedFd> {
    let code = ProgramCode { name: "memtrace_trial", license: c"GPL", instructions, info: None, multi };
    bpf_syscall::load_program(&code, &mut [])
}

/// Returns true if uprobe_multi links can be used for one process and for all.
///
/// Linux has such links since 6.6. Until 6.10 they took a pid for a thread id ("bpf: fix multi-uprobe PID filtering logic").
/// Kernels with this fix refuse a negative pid first.
pub(super) fn has_uprobe_multi() -> bool {
    let instructions = [instruction(BPF_ALU64 | BPF_MOV | BPF_K), instruction(BPF_JMP | BPF_EXIT)];
    let Ok(program) = load(&instructions, true) else { return false };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel on which the tests run has these features.
    #[test]
    fn privileged_features_of_the_running_kernel_are_detected() {
        assert!(has_atomic_exchange() && has_attach_cookie());
    }

    #[test]
    fn privileged_missing_features_are_not_detected() {
        assert!(!has_helper(bpf_func_id::BPF_FUNC_unspec));
    }
}
