//! Whether the kernel has links of many probes, and they do what is needed: found by trying.

use std::io;
use std::os::fd::AsFd;

use aya_obj::generated::{BPF_ALU64, BPF_EXIT, BPF_JMP, BPF_K, BPF_MOV, bpf_insn};

use super::call::{self, Code, Places};

/// Whether one link can place a program at many instructions, for one process as for all.
///
/// Linux has such links since 6.6. Until 6.10 they took a pid for that of a thread ("bpf: fix multi-uprobe PID filtering
/// logic"); kernels that have this mended refuse a negative pid at once.
pub(super) fn is_there() -> bool {
    let instructions = [instruction(BPF_ALU64 | BPF_MOV | BPF_K), instruction(BPF_JMP | BPF_EXIT)];
    let code = Code { name: "memtrace_trial", license: c"GPL", instructions: &instructions, info: None };
    let Ok(program) = call::load_program(&code, &mut []) else { return false };
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
