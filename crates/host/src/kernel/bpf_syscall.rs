//! bpf(2) calls that aya lacks or does not export.

use std::ffi::{CStr, OsStr, c_char};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use aya_obj::generated::bpf_attach_type::{BPF_PERF_EVENT, BPF_TRACE_ITER, BPF_TRACE_UPROBE_MULTI};
use aya_obj::generated::bpf_link_type::{BPF_LINK_TYPE_PERF_EVENT, BPF_LINK_TYPE_UPROBE_MULTI};
use aya_obj::generated::bpf_perf_event_type::{BPF_PERF_EVENT_UPROBE, BPF_PERF_EVENT_URETPROBE};
use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_KPROBE;
use aya_obj::generated::{BPF_F_UPROBE_MULTI_RETURN, bpf_attr, bpf_cmd, bpf_insn, bpf_link_info, bpf_prog_info};
use memtrace_model::Pid;

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
    /// File offsets of the reference counters, one per offset; 0 if there is no counter.
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

/// Attaches a program to a perf event.
pub(super) fn create_perf_link(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let request = unsafe { &mut attributes.link_create };
    request.__bindgen_anon_1.prog_fd = fd_field(program.as_raw_fd());
    request.__bindgen_anon_2.target_fd = fd_field(event.as_raw_fd());
    request.attach_type = BPF_PERF_EVENT as u32;
    // SAFETY: as above.
    let options = unsafe { &mut request.__bindgen_anon_3.perf_event };
    options.bpf_cookie = cookie;
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    unsafe { create(bpf_cmd::BPF_LINK_CREATE, &mut attributes) }
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
    // SAFETY: the kernel writes no arrays, because their lengths are 0.
    unsafe { read_info(program, &mut info) }?;
    Ok(info)
}

/// Returns the first id after `id` of a program or a link of the machine; `None` if there is none. `command` is
/// `BPF_PROG_GET_NEXT_ID` or `BPF_LINK_GET_NEXT_ID`.
pub(super) fn next_id(command: bpf_cmd, id: u32) -> io::Result<Option<u32>> {
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let request = unsafe { &mut attributes.__bindgen_anon_6 };
    request.__bindgen_anon_1.start_id = id;
    // SAFETY: there are no addresses.
    match unsafe { bpf(command, &mut attributes) } {
        // SAFETY: as above.
        Ok(_) => Ok(Some(unsafe { attributes.__bindgen_anon_6.next_id })),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the program or the link with an id. `command` is `BPF_PROG_GET_FD_BY_ID` or `BPF_LINK_GET_FD_BY_ID`.
pub(super) fn open_by_id(command: bpf_cmd, id: u32) -> io::Result<OwnedFd> {
    let mut attributes = zeroed_attributes();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let request = unsafe { &mut attributes.__bindgen_anon_6 };
    // The ids of programs and links are in the same word.
    request.__bindgen_anon_1.link_id = id;
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    unsafe { create(command, &mut attributes) }
}

/// Uprobes of a BPF link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkProbes {
    /// The link has no uprobes.
    None,
    /// The link has uprobes, and the kernel does not show where (before Linux 6.8).
    Hidden,
    Known {
        /// The only process with the probes; `None` for all processes, or if the kernel does not show it.
        pid: Option<Pid>,
        /// Path of the probed file, as memtrace sees it.
        path: PathBuf,
        /// File offsets.
        offsets: Vec<u64>,
    },
}

/// Returns the uprobes of a link, at most `most` of them. Links of perf events show their probes since Linux 6.6
/// (`bpf_perf_link_fill_uprobe`, kernel/bpf/syscall.c), uprobe_multi links since Linux 6.8
/// (`bpf_uprobe_multi_link_fill_link_info`, kernel/trace/bpf_trace.c).
pub(super) fn link_probes(link: BorrowedFd<'_>, most: usize) -> io::Result<LinkProbes> {
    let mut info = zeroed_link_info();
    // SAFETY: there are no addresses, so the kernel writes no arrays.
    unsafe { read_info(link, &mut info) }?;
    if info.type_ == BPF_LINK_TYPE_UPROBE_MULTI as u32 {
        // SAFETY: the variant consists of integers, so any bytes are valid.
        let probes = unsafe { info.__bindgen_anon_1.uprobe_multi };
        let pid = (probes.pid != 0).then_some(Pid(probes.pid));
        match probes.count as usize {
            0 => Ok(LinkProbes::Hidden),
            count => multi_link_probes(link, pid, count.min(most)),
        }
    } else if info.type_ == BPF_LINK_TYPE_PERF_EVENT as u32 {
        // SAFETY: as above.
        let event = unsafe { info.__bindgen_anon_1.perf_event }.type_;
        match [BPF_PERF_EVENT_UPROBE as u32, BPF_PERF_EVENT_URETPROBE as u32].contains(&event) {
            true => perf_link_probe(link),
            false => Ok(LinkProbes::None),
        }
    } else {
        Ok(LinkProbes::None)
    }
}

/// Returns the first `count` probes of a uprobe_multi link.
fn multi_link_probes(link: BorrowedFd<'_>, pid: Option<Pid>, count: usize) -> io::Result<LinkProbes> {
    let mut path = path_buffer();
    let mut offsets = vec![0_u64; count];
    let mut info = zeroed_link_info();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let probes = unsafe { &mut info.__bindgen_anon_1.uprobe_multi };
    probes.path = path.as_mut_ptr() as u64;
    probes.path_size = path.len() as u32;
    probes.offsets = offsets.as_mut_ptr() as u64;
    probes.count = offsets.len() as u32;
    // SAFETY: addresses and lengths belong to two vectors that live until the call has returned.
    match unsafe { read_info(link, &mut info) } {
        // The link has more probes than requested. The kernel has written as many as fit into the buffer.
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {}
        result => result?,
    }
    Ok(LinkProbes::Known { pid, path: path_in(&path), offsets })
}

/// Returns the probe of a link to a perf event.
fn perf_link_probe(link: BorrowedFd<'_>) -> io::Result<LinkProbes> {
    let mut path = path_buffer();
    let mut info = zeroed_link_info();
    // SAFETY: the variant consists of integers, so any bytes are valid.
    let event = unsafe { &mut info.__bindgen_anon_1.perf_event };
    // SAFETY: as above.
    let probe = unsafe { &mut event.__bindgen_anon_1.uprobe };
    probe.file_name = path.as_mut_ptr() as u64;
    probe.name_len = path.len() as u32;
    // SAFETY: address and length belong to a vector that lives until the call has returned.
    unsafe { read_info(link, &mut info) }?;
    // SAFETY: as above.
    let event = unsafe { info.__bindgen_anon_1.perf_event };
    // SAFETY: as above.
    let offset = unsafe { event.__bindgen_anon_1.uprobe }.offset;
    Ok(LinkProbes::Known { pid: None, path: path_in(&path), offsets: vec![offset.into()] })
}

fn zeroed_link_info() -> bpf_link_info {
    // SAFETY: the members of all variants are integers, so 0 is valid.
    unsafe { zeroed() }
}

fn path_buffer() -> Vec<u8> {
    vec![0; libc::PATH_MAX as usize]
}

/// Returns the path that the kernel has written to `buffer`, which ends with a zero byte.
fn path_in(buffer: &[u8]) -> PathBuf {
    let path = CStr::from_bytes_until_nul(buffer).map_or(buffer, CStr::to_bytes);
    PathBuf::from(OsStr::from_bytes(path))
}

/// Reads the kernel's information about a BPF object.
///
/// # Safety
///
/// `T` is the kernel's type for the information about the object. Each address in `info` is valid for the length in `info`.
unsafe fn read_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let mut attributes = zeroed_attributes();
    attributes.info.bpf_fd = fd_field(object.as_raw_fd());
    attributes.info.info_len = size_of::<T>() as u32;
    attributes.info.info = (&raw mut *info) as u64;
    // SAFETY: the kernel writes at most `info_len` bytes to `info`. The caller guarantees the addresses in it.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attributes) }.map(drop)
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
