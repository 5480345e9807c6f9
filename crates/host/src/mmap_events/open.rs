//! Perf event that records the mappings of all processes on one CPU.

use std::io;
use std::mem::size_of;
use std::os::fd::OwnedFd;

use crate::perf_event;

/// `struct perf_event_attr` (include/uapi/linux/perf_event.h) up to `PERF_ATTR_SIZE_VER5`, which every kernel with
/// BPF has. The kernel takes later fields as zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112, "PERF_ATTR_SIZE_VER5");

const PERF_TYPE_SOFTWARE: u32 = 1;
/// Event that counts nothing. The kernel still writes the records that the attributes request.
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;

/// Bit fields of `struct perf_event_attr`, in their order.
mod flag {
    pub(super) const MMAP: u64 = 1 << 8;
    pub(super) const COMM: u64 = 1 << 9;
    pub(super) const TASK: u64 = 1 << 13;
    pub(super) const WATERMARK: u64 = 1 << 14;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(super) const MMAP2: u64 = 1 << 23;
    pub(super) const COMM_EXEC: u64 = 1 << 24;
    pub(super) const USE_CLOCKID: u64 = 1 << 25;
    pub(super) const BUILD_ID: u64 = 1 << 34;
}

/// Opens the event of one CPU.
pub(super) fn open(cpu: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: PERF_COUNT_SW_DUMMY,
        // Trailer of each record, which `record` parses.
        sample_type: PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
        flags: flag::MMAP
            | flag::COMM
            | flag::TASK
            | flag::WATERMARK
            | flag::SAMPLE_ID_ALL
            | flag::MMAP2
            | flag::COMM_EXEC
            | flag::USE_CLOCKID
            | flag::BUILD_ID,
        // No wakeups: the rings are polled.
        wakeup_watermark: u32::MAX,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    };
    let any_process: libc::pid_t = -1;
    // SAFETY: the attributes are initialized, have the size in their field, and contain no pointer.
    unsafe { perf_event::open(&attributes, any_process, cpu.cast_signed()) }
}

/// Returns the time of the monotonic clock in nanoseconds, as in the records.
pub(super) fn now() -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local timespec.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Ok(seconds * 1_000_000_000 + nanoseconds)
}
