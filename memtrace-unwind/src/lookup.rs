//! Lookup of the unwind rule of an address, in tables as stored in BPF maps.
//!
//! Lookups terminate for any table content, because the binary search has a maximum number of steps.

use memtrace_common::unwind::{
    BLOB_BITS, BLOB_ROWS, Mapping, ObjectTable, PAGE_BITS, PENDING_PAGE, RULE_BITS, SEARCH_STEPS, mapping,
};
use memtrace_common::wire::End;

/// Storage of unwind tables.
pub trait Store {
    /// Returns the page at `index` among the pages of all objects, as [`memtrace_common::unwind::page`] encodes it.
    fn page(&self, index: u32) -> Option<u64>;
    /// Returns the blob of rows at `index`.
    fn blob(&self, index: u32) -> Option<&[u32; BLOB_ROWS]>;
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSearch {
    /// The index of the rule.
    Rule(u32),
    /// The address is in JIT code.
    Generated,
    /// No rule, with the reason.
    NoRule(End),
}

/// Finds the rule at `pc`, which must lie in `mapping`.
#[inline(always)]
pub fn find(store: &impl Store, mapping: &Mapping, pc: u64) -> RuleSearch {
    match (mapping.pages_and_kind >> 24) as u8 {
        mapping::TABLE => {}
        mapping::GENERATED => return RuleSearch::Generated,
        mapping::PENDING => return RuleSearch::NoRule(End::TablePending),
        _ => return RuleSearch::NoRule(End::NoTable),
    }
    let address = pc.wrapping_sub(mapping.bias);
    let page = address >> PAGE_BITS;
    if page >= u64::from(mapping.pages_and_kind & 0x00ff_ffff) {
        return RuleSearch::NoRule(End::NoRow);
    }
    let Some(page) = store.page(mapping.page_base.wrapping_add(page as u32)) else {
        return RuleSearch::NoRule(End::NoRow);
    };
    // An unwritten page is 0. The first row of a blob precedes all its pages, so no written page starts at row 0.
    if page as u32 == 0 {
        return RuleSearch::NoRule(if page == PENDING_PAGE { End::TablePending } else { End::NoRow });
    }
    match rule_at(store, page, address as u32 & ((1 << PAGE_BITS) - 1)) {
        Some(rule) => RuleSearch::Rule(rule),
        None => RuleSearch::NoRule(End::NoRow),
    }
}

/// Returns true if `pc` lies in `mapping`.
#[inline(always)]
#[must_use]
pub const fn holds(mapping: &Mapping, pc: u64) -> bool {
    pc >= mapping.begin && pc < mapping.end
}

/// VMA that maps a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmaRange {
    /// First address of the VMA.
    pub begin: u64,
    /// Address after the VMA.
    pub end: u64,
    /// File offset of the first address.
    pub offset: u64,
}

/// Returns the addresses of `vma` that map the segment of `object` around `pc`. If the object has no code at `pc`, the
/// result is marked as unusable. If the object has no table, the result is the whole VMA with the object's kind.
#[inline(always)]
#[must_use]
pub fn mapping(object: &ObjectTable, vma: &VmaRange, pc: u64) -> Mapping {
    let mut result = Mapping {
        begin: vma.begin,
        end: vma.end,
        bias: 0,
        page_base: object.page_base,
        pages_and_kind: object.pages_and_kind,
    };
    if (object.pages_and_kind >> 24) as u8 != mapping::TABLE {
        return result;
    }
    let file_offset = pc.wrapping_sub(vma.begin).wrapping_add(vma.offset);
    for segment in &object.segments {
        if file_offset >= segment.offset && file_offset < segment.end {
            let segment_end = pc.wrapping_add(segment.end - file_offset);
            let segment_begin = pc.wrapping_sub(file_offset - segment.offset);
            if segment_begin > vma.begin {
                result.begin = segment_begin;
            }
            if segment_end < vma.end {
                result.end = segment_end;
            }
            result.bias = vma.begin.wrapping_sub(vma.offset).wrapping_sub(segment.shift);
            return result;
        }
    }
    result.pages_and_kind = u32::from(mapping::UNUSABLE) << 24;
    // The result covers only `pc`, because there may be code after it.
    result.begin = pc;
    result.end = pc.wrapping_add(1);
    result
}

/// Returns the index of the rule of the last row at or before `offset` in a page.
#[inline(always)]
fn rule_at(store: &impl Store, page: u64, offset: u32) -> Option<u32> {
    const MASK: u32 = BLOB_ROWS as u32 - 1;
    let first = page as u32;
    let blob = store.blob(first >> BLOB_BITS)?;
    let bound = offset << RULE_BITS | ((1 << RULE_BITS) - 1);
    let mut low = first;
    let mut high = first.wrapping_add((page >> 32) as u32);
    for _ in 0..SEARCH_STEPS {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        if blob[(middle & MASK) as usize] <= bound {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(blob[(low.wrapping_sub(1) & MASK) as usize] & ((1 << RULE_BITS) - 1))
}

#[cfg(test)]
mod tests;
