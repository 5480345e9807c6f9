//! Records about pages and mappings, and the sample of pages.

use core::mem::{offset_of, size_of};

use super::{Header, ring_of};

/// Binary logarithm of the page size in bytes on all supported machines. Huge pages are larger.
pub const PAGE_SHIFT: u32 = 12;

/// Binary logarithm of the size of a huge page in bytes. A huge page fills a page table, which has 2^9 entries of eight
/// bytes if pages have 4 KiB, on x86-64 and on arm64 (`PMD_SHIFT`).
pub const HUGE_PAGE_SHIFT: u32 = PAGE_SHIFT + 9;

/// A page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FaultRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Address of the page, with flags of [`fault`] in the lowest bits.
    pub page: u64,
    /// Id of the stack, as in an [`super::AllocRecord`].
    pub stack: u64,
}

/// Flags of a page fault.
pub mod fault {
    /// The page was present but did not permit the access, as in copy on write.
    pub const PRESENT: u64 = 1 << 0;
    /// The access was a write.
    pub const WRITE: u64 = 1 << 1;
    /// The fault has mapped the huge page that contains the address, or made it writable. Such a record does not depend on the
    /// sample of pages. If the page is in the sample, a record of the same fault without this flag comes first.
    pub const HUGE: u64 = 1 << 2;
}

/// An address range was mapped, or is about to be unmapped or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RangeRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// First address of the range.
    pub begin: u64,
    /// Size of the range in bytes.
    pub bytes: u64,
    /// Id of the stack, as in an [`super::AllocRecord`]; 0 if the range is about to be unmapped or moved.
    pub stack: u64,
}

/// A mapping has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MoveRecord {
    /// Header, new address range, and stack.
    pub range: RangeRecord,
    /// First address of the old range.
    pub old_begin: u64,
    /// Size of the old range in bytes.
    pub old_bytes: u64,
    /// 1 if the old range stays mapped, without its pages (`MREMAP_DONTUNMAP`), else 0.
    pub keeps: u64,
}

/// A fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ForkRecord {
    /// Kind and time of the fork, with the thread and process of the parent.
    pub header: Header,
    /// Process id of the child, in the root pid namespace.
    pub child: u32,
    /// Padding: zero.
    pub reserved: u32,
}

/// A process shares the memory of another process from now on, as after vfork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ShareRecord {
    /// Kind and time of the fork, with the thread and process of the parent.
    pub header: Header,
    /// Process id of the child, in the root pid namespace.
    pub child: u32,
    /// 1 if the selection includes the child, else 0.
    pub traced: u32,
}

/// Maximum number of processes that share the memory of another process. Further processes are counted apart.
pub const MAX_SHARERS: usize = 1 << 13;

/// Bit in the count of a process's sharers. It is set when the process has exited before its sharers.
pub const MAIN_HAS_EXITED: u64 = 1 << 63;

/// Returns the index of the ring for records about the pages and mappings of process `pid`. If `forks` are recorded,
/// all processes use one ring, so that records about parents and children stay in order.
#[inline(always)]
#[must_use]
pub const fn ring_of_memory(pid: u32, forks: bool, rings: u32) -> u32 {
    if forks { 0 } else { ring_of(pid, 0, rings) }
}

/// Returns true if the page at address `page` of process `pid` belongs to a sample of one page in `one_in`. The result
/// depends on nothing else, so that either all events of a page are recorded or none.
#[inline(always)]
#[must_use]
pub const fn is_sampled(pid: u32, page: u64, one_in: u32) -> bool {
    // A mixer of two rounds (Stafford, "Better Bit Mixing", 2011): neighbours must be sampled independently.
    let key = (page >> PAGE_SHIFT) ^ ((pid as u64) << 40);
    let mixed = (key ^ (key >> 29)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (((mixed >> 32) * one_in as u64) >> 32) == 0
}

const _: () = {
    assert!(size_of::<FaultRecord>() == 32);
    assert!(offset_of!(FaultRecord, page) == 16);
    assert!(offset_of!(FaultRecord, stack) == 24);
    assert!(size_of::<RangeRecord>() == 40);
    assert!(offset_of!(RangeRecord, begin) == 16);
    assert!(offset_of!(RangeRecord, bytes) == 24);
    assert!(offset_of!(RangeRecord, stack) == 32);
    assert!(size_of::<MoveRecord>() == 64);
    assert!(offset_of!(MoveRecord, old_begin) == 40);
    assert!(offset_of!(MoveRecord, old_bytes) == 48);
    assert!(offset_of!(MoveRecord, keeps) == 56);
    assert!(size_of::<ForkRecord>() == 24);
    assert!(offset_of!(ForkRecord, child) == 16);
    assert!(size_of::<ShareRecord>() == 24);
    assert!(offset_of!(ShareRecord, child) == 16);
    assert!(offset_of!(ShareRecord, traced) == 20);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_in_n_is_sampled_at_any_address() {
        for one_in in [1, 7, 64] {
            for (pid, begin, stride) in [(1, 0, 1), (4711, 0x5555_5555_4000, 1), (99_999, 0x7f12_3456_7000, 512)] {
                let pages = (0..64_000u64).map(|page| begin + ((page * stride) << PAGE_SHIFT));
                let sampled = pages.filter(|&page| is_sampled(pid, page, one_in)).count() as f64;
                let expected = 64_000.0 / f64::from(one_in);
                // Four standard deviations.
                assert!((sampled - expected).abs() <= 4.0 * expected.sqrt(), "{one_in}: {sampled} of {expected}");
            }
        }
    }

    #[test]
    fn neighbouring_pages_are_sampled_independently() {
        let sampled = |page: u64| is_sampled(4711, 0x7f00_0000_0000 + (page << PAGE_SHIFT), 2);
        let alike = (0..10_000).filter(|&page| sampled(page) == sampled(page + 1)).count();
        assert!((4_800..5_200).contains(&alike), "{alike}");
    }

    #[test]
    fn processes_spread_over_the_rings_unless_forks_are_recorded() {
        let mut counts = [0u32; 4];
        for pid in 0..4096 {
            counts[ring_of_memory(pid, false, 4) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (900..1150).contains(&count)), "{counts:?}");
        assert!((0..4096).all(|pid| ring_of_memory(pid, true, 4) == 0));
    }
}
