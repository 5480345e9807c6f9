//! The size filter: blocks below a minimum size are not recorded. User space can raise the minimum during a run.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;

use crate::settings::field;

/// Size in bytes of the smallest recorded block.
#[btf_map]
static MIN_RECORDED: Array<u64, 1> = Array::new();

/// Returns true if blocks of `size` bytes are recorded now. Frees are recorded for blocks of any size, because the
/// minimum may have been lower when the block was allocated.
#[inline(always)]
pub fn is_recorded(size: u64) -> bool {
    size >= MIN_RECORDED.get(0).copied().unwrap_or(0) && size <= field!(max_size)
}
