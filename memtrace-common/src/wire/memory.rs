//! Records about pages and mappings, and which pages are told of.

use core::mem::{offset_of, size_of};

use super::{Header, ring_of};

/// The smallest pages are of 2^12 bytes on every machine that is supported.
pub const PAGE_SHIFT: u32 = 12;

/// A page was touched that was not there, or not the process' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FaultRecord {
    /// Kind, thread, process, time.
    pub header: Header,
    /// The page's address; what [`fault`] says in the lowest bits.
    pub page: u64,
    /// The stack's id, as in an [`super::AllocRecord`].
    pub stack: u64,
}

/// How a page was touched.
pub mod fault {
    /// It was there, and could not be touched in this way: a write to what processes share makes a copy.
    pub const PRESENT: u64 = 1 << 0;
    /// It was written to.
    pub const WRITE: u64 = 1 << 1;
}

/// Addresses of a process were mapped, or are about to be unmapped or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RangeRecord {
    /// Kind, thread, process, time.
    pub header: Header,
    /// The first address.
    pub begin: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The stack's id, as in an [`super::AllocRecord`]; zero where nothing was mapped.
    pub stack: u64,
}

/// What came of a move: a mapping lies at `begin` that lay at `old_begin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MoveRecord {
    /// What there is now: begin, bytes, and who asked for it.
    pub range: RangeRecord,
    /// Where it lay.
    pub old_begin: u64,
    /// How much it was.
    pub old_bytes: u64,
    /// Whether it is still mapped where it lay (`MREMAP_DONTUNMAP`), without its pages: 1 or 0.
    pub keeps: u64,
}

/// A process was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ForkRecord {
    /// Kind, time; thread and process are the parent's.
    pub header: Header,
    /// The copy, in the root pid namespace.
    pub child: u32,
    /// Zero.
    pub reserved: u32,
}

/// The ring for records about the pages and mappings of process `pid`, whose order is that of all that happens to them: where
/// `forks` are told of, the one that its copies have too.
#[inline(always)]
#[must_use]
pub const fn ring_of_memory(pid: u32, forks: bool, rings: u32) -> u32 {
    if forks { 0 } else { ring_of(pid, 0, rings) }
}

/// Whether the page at `page` of process `pid` is told of where one in `one_in` is. It depends on nothing else, so that all
/// that happens to a page is told of, or nothing.
#[inline(always)]
#[must_use]
pub const fn is_sampled(pid: u32, page: u64, one_in: u32) -> bool {
    // A mixer of two rounds (Stafford, "Better Bit Mixing", 2011), since neighbours must be chosen independently.
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
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_in_so_many_is_sampled_wherever_it_lies() {
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
    fn neighbouring_pages_are_sampled_by_themselves() {
        let sampled = |page: u64| is_sampled(4711, 0x7f00_0000_0000 + (page << PAGE_SHIFT), 2);
        let alike = (0..10_000).filter(|&page| sampled(page) == sampled(page + 1)).count();
        assert!((4_800..5_200).contains(&alike), "{alike}");
    }

    #[test]
    fn processes_spread_evenly_over_the_rings_unless_they_have_pages_of_others() {
        let mut counts = [0u32; 4];
        for pid in 0..4096 {
            counts[ring_of_memory(pid, false, 4) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (900..1150).contains(&count)), "{counts:?}");
        assert!((0..4096).all(|pid| ring_of_memory(pid, true, 4) == 0));
    }
}
