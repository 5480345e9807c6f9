//! Uprobes with a semaphore on kernels whose uprobe_multi links are not used (before Linux 6.10). aya passes no semaphore to perf events.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use aya_obj::generated::perf_event_attr;
use memtrace_model::{FileOffset, Pid};

use super::attach_point::Scope;
use super::bpf_syscall;
use crate::perf_event;
use crate::procfs::{self, kernel_files};

/// Lowest bit of the file offset of the reference counter in `config` (`PERF_UPROBE_REF_CTR_OFFSET_SHIFT`,
/// kernel/events/core.c). The offset has 32 bits.
const SEMAPHORE_SHIFT: u32 = 32;

/// Attaches a program to the instruction at `offset` of the file at `path`. As long as the returned link is open, the kernel keeps
/// the counter at `semaphore` raised in each process with the probe.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    path: &Path,
    scope: Scope,
    (offset, semaphore): (FileOffset, FileOffset),
    cookie: u64,
) -> io::Result<OwnedFd> {
    let event = open(path, scope, offset, semaphore)?;
    // The link keeps the event open.
    bpf_syscall::create_perf_link(program, event.as_fd(), cookie)
}

/// Opens the event of the uprobe.
fn open(path: &Path, scope: Scope, offset: FileOffset, semaphore: FileOffset) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let semaphore = u32::try_from(semaphore.0).map_err(|_| io::ErrorKind::InvalidInput)?;
    let kind = kernel_files::read_to_string(procfs::uprobe_type())?;
    // SAFETY: the members of the structure are integers and unions of integers, so 0 is valid.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = kind.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.config = u64::from(semaphore) << SEMAPHORE_SHIFT;
    attributes.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    attributes.__bindgen_anon_4.config2 = offset.0;
    // An event for all processes is opened on one processor. Its probe runs on all.
    let (process, processor): (libc::pid_t, libc::c_int) = match scope {
        Scope::Process(Pid(pid)) => (pid.cast_signed(), -1),
        Scope::AllProcesses => (-1, 0),
    };
    // SAFETY: the attributes have the size in their field, and the path lives until the call has returned.
    unsafe { perf_event::open(&attributes, process, processor) }
}
