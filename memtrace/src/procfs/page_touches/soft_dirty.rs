//! Soft-dirty bits of the page tables (Documentation/admin-guide/mm/soft-dirty.rst).

use crate::model::{AbsAddr, Pid};
use crate::procfs::pagemap::{PageMap, SOFT_DIRTY};

/// Size of a huge page, whose entry has one bit.
pub(super) const HUGE: u64 = 1 << 21;

/// Returns true if the kernel keeps soft-dirty bits (`CONFIG_MEM_SOFT_DIRTY`): a page of a new mapping has its bit set.
#[must_use]
pub(crate) fn has_soft_dirty() -> bool {
    let written = Box::new(1_u8);
    let address = std::hint::black_box(&raw const *written) as u64;
    let Ok(map) = PageMap::open(Pid(std::process::id())) else { return false };
    let start = address - address % map.page().0;
    let mut is_dirty = false;
    let read = map.each(AbsAddr(start), AbsAddr(start + map.page().0), |_, entry| is_dirty = entry & SOFT_DIRTY != 0);
    read.is_ok() && is_dirty
}
