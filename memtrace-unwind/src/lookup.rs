//! From an address to its rule, in tables as they lie in the maps.
//!
//! Whatever the tables say, a lookup ends: both searches have a bound.

use memtrace_common::unwind::{
    BLOB_BITS, BLOB_ROWS, MAPPING_STEPS, Mapping, ObjectTable, PAGE_BITS, Process, RULE_BITS, SEARCH_STEPS, mapping,
};
use memtrace_common::wire::End;

/// Where the tables lie.
pub trait Store {
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

/// Finds what holds at `pc`, which lies in `mapping`.
#[inline(always)]
pub fn find(store: &impl Store, mapping: &Mapping, pc: u64) -> Found {
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

/// Whether `pc` lies in `mapping`.
#[inline(always)]
#[must_use]
pub const fn holds(mapping: &Mapping, pc: u64) -> bool {
    pc >= mapping.begin && pc < mapping.end
}

/// Searches the mappings of `process` for the one that `pc` lies in; `at` gives them by their index, counted through all
/// processes'.
#[inline(always)]
pub fn search<'maps>(process: &Process, pc: u64, at: impl Fn(u32) -> Option<&'maps Mapping>) -> Option<&'maps Mapping> {
    let mut low = process.base;
    let mut high = process.base.wrapping_add(process.count);
    // One step more than halvings: the last looks at the one that is left.
    for _ in 0..=MAPPING_STEPS {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let mapping = at(middle)?;
        if pc < mapping.begin {
            high = middle;
        } else if pc >= mapping.end {
            low = middle + 1;
        } else {
            return Some(mapping);
        }
    }
    None
}

/// What of a process' addresses shows a file, and from where on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first address.
    pub begin: u64,
    /// The address behind the last.
    pub end: u64,
    /// The offset in the file of what is at the first address.
    pub offset: u64,
}

/// The mapping that `object`'s part around `pc` makes in `area`; one without a table where the object has none, or has no
/// code there.
#[inline(always)]
#[must_use]
pub fn mapping(object: &ObjectTable, area: &Area, pc: u64) -> Mapping {
    let mut made = Mapping {
        begin: area.begin,
        end: area.end,
        bias: 0,
        page_base: object.page_base,
        pages_and_kind: object.pages_and_kind,
    };
    if (object.pages_and_kind >> 24) as u8 != mapping::TABLE {
        return made;
    }
    let at = pc.wrapping_sub(area.begin).wrapping_add(area.offset);
    for segment in &object.segments {
        if at >= segment.offset && at < segment.end {
            let behind = pc.wrapping_add(segment.end - at);
            let before = pc.wrapping_sub(at - segment.offset);
            if before > area.begin {
                made.begin = before;
            }
            if behind < area.end {
                made.end = behind;
            }
            made.bias = area.begin.wrapping_sub(area.offset).wrapping_sub(segment.shift);
            return made;
        }
    }
    made.pages_and_kind = u32::from(mapping::UNUSABLE) << 24;
    // Behind `pc` there may be code again.
    made.begin = pc;
    made.end = pc.wrapping_add(1);
    made
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
