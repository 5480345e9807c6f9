//! What the kernel itself counts of processes, told when one runs another program or ends.

use core::mem::{offset_of, size_of};

use super::Header;

/// What the kernel has counted of a process since that began. Comes before the exec or exit that it is told at, in the ring of
/// the process' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RusageRecord {
    /// Kind, thread, process, time.
    pub header: Header,
    /// How many page faults needed no device; [`UNKNOWN_COUNT`]: this is not known.
    pub minor_faults: u64,
    /// How many page faults waited for a device; [`UNKNOWN_COUNT`]: this is not known.
    pub major_faults: u64,
    /// The most pages that were ever resident, of whatever program the process ran.
    pub peak_pages: u64,
    /// Whether the process is traced: 1. It need not be, where one is chosen when it runs into a probe: 0.
    pub traced: u64,
}

/// Stands for a number that could not be read.
pub const UNKNOWN_COUNT: u64 = u64::MAX;

const _: () = {
    assert!(size_of::<RusageRecord>() == 48);
    assert!(offset_of!(RusageRecord, minor_faults) == 16);
    assert!(offset_of!(RusageRecord, major_faults) == 24);
    assert!(offset_of!(RusageRecord, peak_pages) == 32);
    assert!(offset_of!(RusageRecord, traced) == 40);
};
