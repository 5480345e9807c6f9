//! How the kernel is asked for records about mappings: one event a processor, for all processes.

use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// `struct perf_event_attr` (include/uapi/linux/perf_event.h) up to `PERF_ATTR_SIZE_VER5`, which every kernel with BPF has;
/// a kernel takes the fields behind that as zero.
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
/// Counts nothing; its records come all the same.
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Bits of the flags word, by the order of the bit fields in `struct perf_event_attr`.
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

/// Opens the event of one processor; with it, whether its records name build-ids.
pub(super) fn open(processor: u32) -> io::Result<(OwnedFd, bool)> {
    // Before 5.12 the build-id's flag is a reserved one and refused; then records name device and inode.
    match open_with(processor, flag::BUILD_ID) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open_with(processor, 0)?, false)),
        result => Ok((result?, true)),
    }
}

fn open_with(processor: u32, more: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: PERF_COUNT_SW_DUMMY,
        // What every record ends with; `record` counts on it.
        sample_type: PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
        flags: flag::MMAP
            | flag::COMM
            | flag::TASK
            | flag::WATERMARK
            | flag::SAMPLE_ID_ALL
            | flag::MMAP2
            | flag::COMM_EXEC
            | flag::USE_CLOCKID
            | more,
        // Nobody waits for these events, so nobody need be woken.
        wakeup_watermark: u32::MAX,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    };
    let any_process: libc::pid_t = -1;
    let no_group: libc::c_int = -1;
    // SAFETY: the attributes are as long as they say, initialized, and outlive the call, which keeps no pointer to them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            any_process,
            processor,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = RawFd::try_from(result).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The monotonic clock, which the records carry too, in nanoseconds.
pub(super) fn now() -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Ok(seconds * 1_000_000_000 + nanoseconds)
}
