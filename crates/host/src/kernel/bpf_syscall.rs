//! bpf(2) calls that aya lacks or does not export.

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use aya_obj::generated::bpf_attach_type::{BPF_TRACE_ITER, BPF_TRACE_UPROBE_MULTI};
use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_KPROBE;
use aya_obj::generated::{BPF_F_UPROBE_MULTI_RETURN, bpf_attr, bpf_cmd, bpf_insn, bpf_prog_info};

use super::helper_process;
use crate::bpf_call::{bpf, zeroed_attributes};

/// Program for uprobes, ready for the verifier.
#[derive(Clone, Copy)]
pub(super) struct ProgramCode<'a> {
    pub(super) name: &'a str,
    pub(super) license: &'a CStr,
    pub(super) instructions: &'a [bpf_insn],
    pub(super) info: Option<DebugInfo<'a>>,
}

/// BTF of a program. The verifier requires it for functions that are verified separately.
#[derive(Clone, Copy)]
pub(super) struct DebugInfo<'a> {
    pub(super) btf: BorrowedFd<'a>,
    /// `struct bpf_func_info` of each function.
    pub(super) functions: Records<'a>,
    /// `struct bpf_line_info`, for the verifier's log.
    pub(super) lines: Records<'a>,
}

/// Array of equally sized records, as passed to the kernel.
#[derive(Clone, Copy)]
pub(super) struct Records<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) count: usize,
}

impl Records<'_> {
    fn size(self) -> u32 {
        self.bytes.len().checked_div(self.count).unwrap_or(0) as u32
    }
}

/// Attach points of a uprobe_multi link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkPoints<'a> {
    /// File offsets.
    pub(super) offsets: &'a [u64],
    /// BPF cookies, one per offset.
    pub(super) cookies: &'a [u64],
    /// File offsets of the reference counters, one per offset; 0 for none.
    pub(super) semaphores: &'a [u64],
}

/// Loads a program for uprobe_multi links. The verifier writes its log to `log`, which may be empty.
pub(super) fn load_program(code: &ProgramCode<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
    load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    load.insns = address(code.instructions);
    load.insn_cnt = code.instructions.len() as u32;
    load.license = code.license.as_ptr() as u64;
    // The last byte remains 0.
    let length = load.prog_name.len() - 1;
    for (letter, &byte) in load.prog_name[..length].iter_mut().zip(code.name.as_bytes()) {
        // `c_char` is signed on some machines.
        *letter = c_char::from_ne_bytes([byte]);
    }
    if let Some(DebugInfo { btf, functions, lines }) = code.info {
        load.prog_btf_fd = fd_field(btf.as_raw_fd());
        load.func_info = address(functions.bytes);
        load.func_info_cnt = functions.count as u32;
        load.func_info_rec_size = functions.size();
        load.line_info = address(lines.bytes);
        load.line_info_cnt = lines.count as u32;
        load.line_info_rec_size = lines.size();
    }
    if !log.is_empty() {
        // Instructions (1) and statistics (4); see `bpf_log_attr` in kernel/bpf/log.c.
        load.log_level = 1 | 4;
        load.log_buf = log.as_mut_ptr() as u64;
        load.log_size = log.len() as u32;
    }
    // SAFETY: addresses and lengths belong to slices that are borrowed during the call.
    unsafe { create(bpf_cmd::BPF_PROG_LOAD, &mut attributes) }
}

/// Loads BTF.
pub(super) fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let load = unsafe { &mut attributes.__bindgen_anon_7 };
    load.btf = address(btf);
    load.btf_size = btf.len() as u32;
    // SAFETY: address and length belong to a slice that is borrowed during the call.
    unsafe { create(bpf_cmd::BPF_BTF_LOAD, &mut attributes) }
}

/// Attaches a program to `points` of the file at `path`, in the process `pid`, or in all processes if `pid` is 0. With
/// `at_return`, each point is the entry of a function, and the program runs when the function returns.
pub(super) fn create_link(
    program: BorrowedFd<'_>,
    path: &CStr,
    points: LinkPoints<'_>,
    pid: u32,
    at_return: bool,
) -> io::Result<OwnedFd> {
    let LinkPoints { offsets, cookies, semaphores } = points;
    assert_eq!([cookies.len(), semaphores.len()], [offsets.len(); 2], "each offset has a cookie and a semaphore");
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let request = unsafe { &mut attributes.link_create };
    request.__bindgen_anon_1.prog_fd = fd_field(program.as_raw_fd());
    request.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: as above.
    let probes = unsafe { &mut request.__bindgen_anon_3.uprobe_multi };
    probes.path = path.as_ptr() as u64;
    probes.offsets = address(offsets);
    probes.cookies = address(cookies);
    probes.ref_ctr_offsets = address(semaphores);
    probes.cnt = offsets.len() as u32;
    probes.flags = if at_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 };
    probes.pid = pid;
    let mut link = Err(io::ErrorKind::Other.into());
    let call = || {
        // SAFETY: the addresses belong to a string and to three slices with the given lengths. They are borrowed during
        // the call.
        link = unsafe { create(bpf_cmd::BPF_LINK_CREATE, &mut attributes) };
    };
    // SAFETY: the work is one system call, and an `io::Error` of an error code allocates no memory.
    unsafe { helper_process::run(call) };
    link
}

/// Attaches an iterator program.
pub(super) fn create_iterator_link(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let request = unsafe { &mut attributes.link_create };
    request.__bindgen_anon_1.prog_fd = fd_field(program.as_raw_fd());
    request.attach_type = BPF_TRACE_ITER as u32;
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    unsafe { create(bpf_cmd::BPF_LINK_CREATE, &mut attributes) }
}

/// Starts an iteration of the iterator that `link` has attached.
pub(super) fn create_iterator(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = zeroed_attributes();
    attributes.iter_create.link_fd = fd_field(link.as_raw_fd());
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    unsafe { create(bpf_cmd::BPF_ITER_CREATE, &mut attributes) }
}

/// Returns the kernel's information about a program.
pub(super) fn program_info(program: BorrowedFd<'_>) -> io::Result<bpf_prog_info> {
    // SAFETY: the members are integers, so 0 is valid.
    let mut info: bpf_prog_info = unsafe { zeroed() };
    let mut attributes = zeroed_attributes();
    attributes.info.bpf_fd = fd_field(program.as_raw_fd());
    attributes.info.info_len = size_of::<bpf_prog_info>() as u32;
    attributes.info.info = (&raw mut info) as u64;
    // SAFETY: the kernel writes at most `info_len` bytes to `info`, and no arrays, because their lengths are 0.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    Ok(info)
}

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr() as u64
}

fn fd_field(descriptor: RawFd) -> u32 {
    descriptor.cast_unsigned()
}

/// Makes a bpf(2) call that returns a new descriptor.
///
/// # Safety
///
/// The conditions of [`bpf`] apply. The command must also return a new descriptor.
unsafe fn create(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees it.
    let fd = unsafe { bpf(command, attributes) }?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the call has created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
