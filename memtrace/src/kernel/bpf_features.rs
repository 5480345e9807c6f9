//! What the kernel's BPF has, found by trying.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya_obj::generated::{
    BPF_ALU64, BPF_ATOMIC, BPF_CALL, BPF_DW, BPF_EXIT, BPF_JMP, BPF_K, BPF_MEM, BPF_MOV, BPF_ST, BPF_STX, BPF_XCHG,
    bpf_func_id, bpf_insn,
};

use super::bpf_syscall::{self as call, Code, Places};

/// Whether programs can exchange words atomically.
pub(super) fn exchanges() -> bool {
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

/// Whether programs are told at which of the places that they were put to they run (Linux 5.15).
pub(super) fn tells_places() -> bool {
    has_helper(bpf_func_id::BPF_FUNC_get_attach_cookie)
}

/// Whether programs can ask for the control groups above the current one (Linux 5.16).
pub(super) fn tells_groups() -> bool {
    has_helper(bpf_func_id::BPF_FUNC_get_current_ancestor_cgroup_id)
}

/// Whether programs at probes may call a helper that takes one argument: their context, or no matter what.
fn has_helper(helper: bpf_func_id) -> bool {
    let mut call = instruction(BPF_JMP | BPF_CALL);
    call.imm = helper as i32;
    load(&[call, instruction(BPF_JMP | BPF_EXIT)], false).is_ok()
}

/// The register that points to the end of a program's stack.
const FRAME: u8 = 10;

fn load(instructions: &[bpf_insn], together: bool) -> io::Result<OwnedFd> {
    let code = Code { name: "memtrace_trial", license: c"GPL", instructions, info: None, together };
    call::load_program(&code, &mut [])
}

/// Whether one link can place a program at many instructions, for one process as for all.
///
/// Linux has such links since 6.6. Until 6.10 they took a pid for that of a thread ("bpf: fix multi-uprobe PID filtering
/// logic"); kernels that have this mended refuse a negative pid at once.
pub(super) fn is_there() -> bool {
    let instructions = [instruction(BPF_ALU64 | BPF_MOV | BPF_K), instruction(BPF_JMP | BPF_EXIT)];
    let Ok(program) = load(&instructions, true) else { return false };
    // A folder cannot be probed, so that no link comes of it.
    let refusal = |pid: i32| {
        let places = Places { offsets: &[0], cookies: &[0] };
        let link = call::create_link(program.as_fd(), c"/", places, pid.cast_unsigned(), false);
        link.err().as_ref().and_then(io::Error::raw_os_error)
    };
    refusal(0) == Some(libc::EBADF) && refusal(-1) == Some(libc::EINVAL)
}

/// An instruction on register 0 without an operand.
fn instruction(code: u32) -> bpf_insn {
    bpf_insn { code: code as u8, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As every kernel does on which the tests run.
    #[test]
    fn privileged_what_the_running_kernel_has_is_found() {
        assert!(exchanges() && tells_places() && tells_groups());
    }

    #[test]
    fn privileged_what_no_kernel_has_is_not_found() {
        assert!(!has_helper(bpf_func_id::BPF_FUNC_unspec));
    }
}
