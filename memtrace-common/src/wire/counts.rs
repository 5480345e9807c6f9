//! What the kernel itself counts of processes, told when one runs another program or ends.

use core::mem::{offset_of, size_of};

use super::Header;

/// What the kernel has counted of a process since that began. Comes before the exec or exit that it is told at, in the ring of
/// the process' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CountsRecord {
    /// Kind, thread, process, time.
    pub header: Header,
    /// How many page faults needed no device; [`UNCOUNTED`]: this is not known.
    pub minor_faults: u64,
    /// How many page faults waited for a device; [`UNCOUNTED`]: this is not known.
    pub major_faults: u64,
    /// The most pages that were ever resident, of whatever program the process ran.
    pub peak_pages: u64,
    /// Whether the process is traced: 1. It need not be, where one is chosen when it runs into a probe: 0.
    pub traced: u64,
}

/// Stands for a number that could not be read.
pub const UNCOUNTED: u64 = u64::MAX;

/// Where the kernel keeps what it counts: offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CountsLayout {
    /// Whether it is told: 1 or 0.
    pub told: u32,
    /// `min_flt` in `task_struct`: those of a thread that is there.
    pub task_minor: u32,
    /// `maj_flt` in `task_struct`.
    pub task_major: u32,
    /// `thread_node` in `task_struct`.
    pub task_node: u32,
    /// `min_flt` in `signal_struct`: those of the threads that are gone.
    pub signal_minor: u32,
    /// `maj_flt` in `signal_struct`.
    pub signal_major: u32,
    /// `thread_head` in `signal_struct`: the list of the threads that are there.
    pub signal_threads: u32,
    /// `stats_lock`'s sequence number in `signal_struct`: odd while a thread goes, and another one behind.
    pub signal_sequence: u32,
    /// `maxrss` in `signal_struct`.
    pub signal_peak: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<CountsRecord>() == 48);
    assert!(offset_of!(CountsRecord, minor_faults) == 16);
    assert!(offset_of!(CountsRecord, major_faults) == 24);
    assert!(offset_of!(CountsRecord, peak_pages) == 32);
    assert!(offset_of!(CountsRecord, traced) == 40);
    assert!(size_of::<CountsLayout>() == 40);
};
