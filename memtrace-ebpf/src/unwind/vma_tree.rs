//! Search for a VMA without the mmap lock.
//!
//! `bpf_find_vma` fails while another thread holds the mmap lock for writing or waits for it, until that thread is
//! scheduled. At a page fault it also fails at the second VMA. Since Linux 6.1 the VMAs are in a maple tree
//! (include/linux/maple_tree.h). Since Linux 6.1.24 the nodes of the tree are freed after an RCU grace period, so
//! they can be read without the lock. In older kernels a node can be rewritten while it is read. In all kernels a
//! slot can change during the search, so the caller checks the VMA that was found.

use crate::kernel::read_word;
use crate::settings::field;

/// Maximum number of levels. This suffices for 65,000 mappings, the default limit of a process, if each node has four
/// entries, the minimum (`mt_min_slots`, lib/maple_tree.c).
const MAX_LEVELS: u32 = 8;

/// Maximum number of pivots of a node (`MAPLE_RANGE64_SLOTS` - 1).
const MAX_PIVOTS: u32 = 15;

/// Mask of the bits that an entry adds to the address of a node (`MAPLE_NODE_MASK`). Nodes are aligned to 256 bytes.
const NODE_MASK: u64 = 255;

/// Mask of the lowest bits of the root, which say if it points to a node (`xa_is_node`, include/linux/xarray.h).
const NODE_BITS: u64 = 3;

/// Value of [`NODE_BITS`] of a root that points to a node. Any other root is the entry for address 0.
const NODE: u64 = 2;

/// Largest root with the value [`NODE`] in [`NODE_BITS`] that does not point to a node.
const LARGEST_VALUE: u64 = 4096;

/// Position of the node's type in an entry that points to a node (`mte_node_type`, lib/maple_tree.c).
const TYPE_SHIFT: u64 = 3;
/// Mask of the node's type after the shift.
const TYPE_MASK: u64 = 15;

/// Type of a leaf (`maple_leaf_64` of `enum maple_type`).
const LEAF_64: u64 = 1;
/// Type of a node that also stores the sizes of gaps (`maple_arange_64`).
const ARANGE_64: u64 = 3;

const WORD: u32 = size_of::<u64>() as u32;

/// Returns true if the kernel keeps its VMAs in a maple tree.
#[inline(always)]
pub fn is_known() -> bool {
    field!(vma_tree.known) != 0
}

/// Returns the address of the VMA that contains `address`, or 0 if it is not found. `mm` is the address of an
/// `mm_struct`.
#[inline(always)]
pub fn find(mm: u64, address: u64) -> u64 {
    let mut entry = read_word(mm, field!(vma_tree.mm_root));
    if entry & NODE_BITS != NODE || entry <= LARGEST_VALUE {
        return 0;
    }
    for _ in 0..MAX_LEVELS {
        let is_leaf = kind(entry) <= LEAF_64;
        entry = unwind_descend(entry, address);
        if is_leaf {
            return entry;
        }
    }
    0
}

#[inline(always)]
fn kind(entry: u64) -> u64 {
    entry >> TYPE_SHIFT & TYPE_MASK
}

/// Returns the entry for `address` in the node that `entry` points to (`mtree_range_walk`, lib/maple_tree.c). The
/// function is global, so that the verifier checks it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_descend(entry: u64, address: u64) -> u64 {
    let node = entry & !NODE_MASK;
    let (pivots, slots) = if kind(entry) == ARANGE_64 {
        (field!(vma_tree.arange_pivot), field!(vma_tree.arange_slot))
    } else {
        (field!(vma_tree.range_pivot), field!(vma_tree.range_slot))
    };
    // The slots follow the pivots. A pivot is the last address of its slot. The last slot has no pivot, and the
    // pivots of unused slots are 0.
    let count = slots.wrapping_sub(pivots) / WORD;
    let mut index = 0;
    for _ in 0..MAX_PIVOTS {
        if index >= count {
            break;
        }
        let pivot = read_word(node, pivots + index * WORD);
        if pivot >= address || pivot == 0 && index > 0 {
            break;
        }
        index += 1;
    }
    read_word(node, slots + index * WORD)
}
