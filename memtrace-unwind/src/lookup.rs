//! From an address to its rule, in tables as they lie in the maps.
//!
//! Whatever the tables say, a lookup ends: both searches have a bound.

use memtrace_common::unwind::{
    BLOB_BITS, BLOB_ROWS, MAPPING_STEPS, Mapping, PAGE_BITS, Process, RULE_BITS, SEARCH_STEPS, mapping,
};
use memtrace_common::wire::End;

/// Where the tables lie.
pub trait Store {
    /// The mapping at `index`, counted through all processes'.
    fn mapping(&self, index: u32) -> Option<&Mapping>;
    /// The page at `index`, counted through all objects'.
    fn page(&self, index: u32) -> Option<u64>;
    /// The blob at `index`.
    fn blob(&self, index: u32) -> Option<&[u32; BLOB_ROWS]>;
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The number of a rule.
    Rule(u32),
    /// Code that was generated at run time.
    Generated,
    /// Nothing, and why.
    Nothing(End),
}

/// Finds what holds at `pc` in `process`.
///
/// `last` is the mapping that was hit last, counted through all processes': a stack stays in one object for many frames.
#[inline(always)]
pub fn find(store: &impl Store, process: &Process, last: &mut u32, pc: u64) -> Found {
    let Some(mapping) = mapping_at(store, process, last, pc) else { return Found::Nothing(End::NoMapping) };
    match (mapping.pages_and_kind >> 24) as u8 {
        mapping::TABLE => {}
        mapping::GENERATED => return Found::Generated,
        mapping::PENDING => return Found::Nothing(End::TablePending),
        _ => return Found::Nothing(End::NoTable),
    }
    let address = pc.wrapping_sub(mapping.bias);
    let page = address >> PAGE_BITS;
    if page >= u64::from(mapping.pages_and_kind & 0x00ff_ffff) {
        return Found::Nothing(End::NoRow);
    }
    let rule = store
        .page(mapping.page_base.wrapping_add(page as u32))
        .and_then(|page| rule_at(store, page, address as u32 & ((1 << PAGE_BITS) - 1)));
    match rule {
        Some(rule) => Found::Rule(rule),
        None => Found::Nothing(End::NoRow),
    }
}

#[inline(always)]
fn mapping_at<'store>(
    store: &'store impl Store,
    process: &Process,
    last: &mut u32,
    pc: u64,
) -> Option<&'store Mapping> {
    if last.wrapping_sub(process.base) < process.count
        && let Some(mapping) = store.mapping(*last)
        && pc >= mapping.begin
        && pc < mapping.end
    {
        return Some(mapping);
    }
    let mut low = process.base;
    let mut high = process.base.wrapping_add(process.count);
    // One step more than halvings: the last looks at the one that is left.
    for _ in 0..=MAPPING_STEPS {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let mapping = store.mapping(middle)?;
        if pc < mapping.begin {
            high = middle;
        } else if pc >= mapping.end {
            low = middle + 1;
        } else {
            *last = middle;
            return Some(mapping);
        }
    }
    None
}

/// The rule of the last row at or before `offset` of a page.
#[inline(always)]
fn rule_at(store: &impl Store, page: u64, offset: u32) -> Option<u32> {
    const MASK: u32 = BLOB_ROWS as u32 - 1;
    let first = page as u32;
    // A page that was never written is zero; the first row of a blob is before every page of it.
    if first == 0 {
        return None;
    }
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
