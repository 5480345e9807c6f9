//! The bpf(2) calls that aya does not make, or does not hand out.

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use aya_obj::generated::bpf_attach_type::BPF_TRACE_UPROBE_MULTI;
use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_KPROBE;
use aya_obj::generated::{BPF_F_UPROBE_MULTI_RETURN, bpf_attr, bpf_cmd, bpf_insn, bpf_prog_info};

use super::helper_process as apart;

/// A program for probes of user programs, ready for the verifier.
#[derive(Clone, Copy)]
pub(super) struct Code<'a> {
    pub(super) name: &'a str,
    pub(super) license: &'a CStr,
    pub(super) instructions: &'a [bpf_insn],
    pub(super) info: Option<Info<'a>>,
    /// Whether one link will place it at many instructions.
    pub(super) together: bool,
}

/// What type information says of a program: without it the verifier knows no function that is verified by itself.
#[derive(Clone, Copy)]
pub(super) struct Info<'a> {
    pub(super) types: BorrowedFd<'a>,
    /// `struct bpf_func_info`, one for each function.
    pub(super) functions: Records<'a>,
    /// `struct bpf_line_info`, for the verifier's log.
    pub(super) lines: Records<'a>,
}

/// Records of one size, as the kernel reads them.
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

/// An instruction to place a program at, and what the program is told there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places<'a> {
    /// Offsets in the file.
    pub(super) offsets: &'a [u64],
    /// As many cookies.
    pub(super) cookies: &'a [u64],
}

/// Hands a program to the verifier. What it says goes into `log`, which
/// may be empty.
pub(super) fn load_program(code: &Code<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = nothing();
    // SAFETY: every bit pattern is one of these integers.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
    if code.together {
        load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    }
    load.insns = address(code.instructions);
    load.insn_cnt = code.instructions.len() as u32;
    load.license = code.license.as_ptr() as u64;
    // The last byte stays 0.
    let length = load.prog_name.len() - 1;
    for (letter, &byte) in load.prog_name[..length].iter_mut().zip(code.name.as_bytes()) {
        // A byte has a sign on one machine and none on another.
        *letter = c_char::from_ne_bytes([byte]);
    }
    if let Some(Info { types, functions, lines }) = code.info {
        load.prog_btf_fd = number(types.as_raw_fd());
        load.func_info = address(functions.bytes);
        load.func_info_cnt = functions.count as u32;
        load.func_info_rec_size = functions.size();
        load.line_info = address(lines.bytes);
        load.line_info_cnt = lines.count as u32;
        load.line_info_rec_size = lines.size();
    }
    if !log.is_empty() {
        // What was done (1), and statistics (4); see `bpf_log_attr` in kernel/bpf/log.c.
        load.log_level = 1 | 4;
        load.log_buf = log.as_mut_ptr() as u64;
        load.log_size = log.len() as u32;
    }
    // SAFETY: the addresses are those of slices that are borrowed until the call is over, with their lengths.
    unsafe { descriptor(bpf_cmd::BPF_PROG_LOAD, &mut attributes) }
}

/// Hands type information to the kernel.
pub(super) fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attributes = nothing();
    // SAFETY: every bit pattern is one of these integers.
    let load = unsafe { &mut attributes.__bindgen_anon_7 };
    load.btf = address(types);
    load.btf_size = types.len() as u32;
    // SAFETY: the address is that of a slice that is borrowed until the call is over, with its length.
    unsafe { descriptor(bpf_cmd::BPF_BTF_LOAD, &mut attributes) }
}

/// Places a program at many instructions of the file at `path`, for one process or, where `pid` is 0, for all. With
/// `at_return` it runs when the functions return to which the instructions belong.
pub(super) fn create_link(
    program: BorrowedFd<'_>,
    path: &CStr,
    places: Places<'_>,
    pid: u32,
    at_return: bool,
) -> io::Result<OwnedFd> {
    let Places { offsets, cookies } = places;
    assert_eq!(offsets.len(), cookies.len(), "the kernel reads as many of the one as of the other");
    let mut attributes = nothing();
    // SAFETY: every bit pattern is one of these integers.
    let link = unsafe { &mut attributes.link_create };
    link.__bindgen_anon_1.prog_fd = number(program.as_raw_fd());
    link.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: as above.
    let probes = unsafe { &mut link.__bindgen_anon_3.uprobe_multi };
    probes.path = path.as_ptr() as u64;
    probes.offsets = address(offsets);
    probes.cookies = address(cookies);
    probes.cnt = offsets.len() as u32;
    probes.flags = if at_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 };
    probes.pid = pid;
    let mut made = Err(io::ErrorKind::Other.into());
    let create = || {
        // SAFETY: the addresses are those of slices and of a string that are borrowed until the call is over; both slices
        // have the length that is given.
        made = unsafe { descriptor(bpf_cmd::BPF_LINK_CREATE, &mut attributes) };
    };
    // SAFETY: it is one system call; no error of the system's takes memory.
    unsafe { apart::run(create) };
    made
}

/// What the kernel says of a program.
pub(super) fn program_info(program: BorrowedFd<'_>) -> io::Result<bpf_prog_info> {
    // SAFETY: all of its members are integers, for which 0 is a value.
    let mut info: bpf_prog_info = unsafe { zeroed() };
    let mut attributes = nothing();
    attributes.info.bpf_fd = number(program.as_raw_fd());
    attributes.info.info_len = size_of::<bpf_prog_info>() as u32;
    attributes.info.info = (&raw mut info) as u64;
    // SAFETY: the kernel writes as many bytes as are given there at most, where `info` lies; since its counts of arrays
    // are 0, it writes no array.
    unsafe { call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    Ok(info)
}

fn nothing() -> bpf_attr {
    // SAFETY: all members of all its variants are integers, for which 0 is a value.
    unsafe { zeroed() }
}

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr() as u64
}

/// A descriptor as the kernel's structs have it.
fn number(descriptor: RawFd) -> u32 {
    descriptor.cast_unsigned()
}

/// A call that makes a descriptor.
///
/// # Safety
///
/// As for [`call`]; and the command must be one that makes a descriptor.
unsafe fn descriptor(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for it.
    let made = unsafe { call(command, attributes) }?;
    let made = RawFd::try_from(made).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// # Safety
///
/// Every address in `attributes` that the command reads or writes at must be good for as many bytes as they say.
unsafe fn call(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<i64> {
    let size = size_of::<bpf_attr>();
    // SAFETY: the caller vouches for what the attributes lead to; they themselves are borrowed. Bytes that the kernel does
    // not know may follow those that it does, if they are 0 (`bpf_check_uarg_tail_zero`, kernel/bpf/syscall.c).
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, &raw mut *attributes, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
