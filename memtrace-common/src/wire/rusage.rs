//! Record of a process's page faults and peak RSS, from the kernel's own counters.

use core::mem::{offset_of, size_of};

use super::Header;

/// Rusage of a process since its start. The record precedes the record of the exec or exit, in the ring for the pages
/// and mappings of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RusageRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Number of minor page faults, or [`UNKNOWN_COUNT`].
    pub minor_faults: u64,
    /// Number of major page faults, or [`UNKNOWN_COUNT`].
    pub major_faults: u64,
    /// Peak RSS in pages: the maximum of all images of the process.
    pub peak_pages: u64,
    /// 1 if the image that ends was traced, else 0. Untraced images have a record if the filters select processes at
    /// their first probe hit.
    pub traced: u64,
}

/// Value of a count that could not be read.
pub const UNKNOWN_COUNT: u64 = u64::MAX;

const _: () = {
    assert!(size_of::<RusageRecord>() == 48);
    assert!(offset_of!(RusageRecord, minor_faults) == 16);
    assert!(offset_of!(RusageRecord, major_faults) == 24);
    assert!(offset_of!(RusageRecord, peak_pages) == 32);
    assert!(offset_of!(RusageRecord, traced) == 40);
};
