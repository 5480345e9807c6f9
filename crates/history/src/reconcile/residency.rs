//! Resident share of the touched pages: compares page totals with the page tables. Pure.
//!
//! No event reports that a page is gone. The page tables show it: a page that was unmapped, released, moved or
//! reclaimed is not present. The kernel can map further pages along with a touched page: the rest of a huge page,
//! or up to 15 other cached pages of a file (`do_fault_around`, mm/memory.c). These pages are attributed to the
//! stack that touched the page.

use memtrace_model::{
    Amount, Bytes, ImageUsage, MappingKind, PAGE, Part, Quantities, Quantity, Residency, ResidentRange, StackKey,
    Touched, TouchedPages,
};

/// Size and alignment of the fault-around window in bytes (`fault_around_pages`, mm/memory.c).
const FAULT_AROUND: u64 = 1 << 16;
/// Size of a huge page in bytes.
const HUGE: u64 = 1 << 21;

/// Resident pages of a process, and properties of its page totals.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    /// Ranges that are resident now, ordered by address.
    pub now: &'a [ResidentRange],
    /// Ranges that were resident when tracing began, ordered by address; empty for processes that started later.
    pub before: &'a [ResidentRange],
    /// Sampling period: one page in this number is in the totals.
    pub one_in: u32,
    /// True if the totals are grouped by kind of memory.
    pub by_kind: bool,
}

/// Replaces the live totals of `usage`, which count all touched pages, by totals of the resident pages. Without
/// `pages`, the live totals do not change. If pages were sampled, scales all totals to estimates of the whole.
pub fn reconcile_pages(usage: &mut ImageUsage, pages: Option<Pages<'_>>, one_in: u32) {
    let touched = std::mem::take(&mut usage.touched);
    if let Some(pages) = pages {
        let mut attribution = Attribution { usage, by_kind: pages.by_kind, residency: Residency::default() };
        attribution.release_all();
        for range in pages.now {
            attribution.add_range(range, &touched, pages);
        }
        let residency = attribution.residency;
        usage.resident = Some(residency);
    }
    scale_sample(usage, u64::from(one_in));
    usage.total = usage.by_stack.values().copied().sum();
}

/// Adds the hot and cold bytes of each stack that created mappings. `usage` must still have the mapped ranges,
/// which [`set_resident_bytes`] removes.
pub fn add_touches(usage: &mut ImageUsage, pages: &TouchedPages) {
    for mapped in &usage.touched {
        let (hot, cold) = pages.hot_and_cold(mapped.begin, mapped.end());
        let touches = Quantities::ZERO.with(Quantity::HotBytes, hot.0).with(Quantity::ColdBytes, cold.0);
        if let Some(stack) = usage.by_stack.get_mut(&mapped.key) {
            *stack += touches;
            usage.total += touches;
        }
    }
}

/// Adds the resident bytes of each stack that created mappings, and removes the mapped ranges. `now`: resident
/// ranges of the process.
pub fn set_resident_bytes(usage: &mut ImageUsage, now: &[ResidentRange]) {
    let mapped = std::mem::take(&mut usage.touched);
    for range in now {
        let first = mapped.partition_point(|mapped| mapped.end() <= range.begin);
        for mapped in mapped.iter().skip(first).take_while(|mapped| mapped.begin < range.end) {
            let bytes = mapped.end().0.min(range.end.0) - mapped.begin.0.max(range.begin.0);
            if let Some(stack) = usage.by_stack.get_mut(&mapped.key) {
                stack[Quantity::ResidentBytes] += bytes;
                usage.total[Quantity::ResidentBytes] += bytes;
            }
        }
    }
}

/// Scales the totals of a sample of one page in `one_in`. Each page is chosen independently. The variance follows
/// the Horvitz-Thompson estimator ("A Generalization of Sampling Without Replacement from a Finite Universe",
/// 1952).
fn scale_sample(usage: &mut ImageUsage, one_in: u64) {
    usage.by_stack.values_mut().for_each(|stack| scale_stack(stack, one_in));
    for kind in usage.resident.iter_mut().flat_map(|residency| residency.0.values_mut()) {
        kind.with_stack.0 *= one_in;
        kind.variance = kind.variance.saturating_mul(one_in * (one_in - 1));
    }
}

/// Scales the totals of one stack, or their changes, in a sample of one page in `one_in`.
pub(crate) fn scale_stack(stack: &mut Quantities, one_in: u64) {
    for quantity in Quantity::ALL {
        let value = stack[quantity];
        stack[quantity] = match quantity {
            Quantity::LiveVariance | Quantity::AllocVariance => value.saturating_mul(one_in * (one_in - 1)),
            Quantity::MergedStacks => value,
            _ => value.wrapping_mul(one_in),
        };
    }
}

/// Attribution of resident pages to stacks.
struct Attribution<'a> {
    usage: &'a mut ImageUsage,
    by_kind: bool,
    residency: Residency,
}

impl Attribution<'_> {
    /// Counts all touched pages as released; [`Self::attribute`] makes the resident ones live again.
    fn release_all(&mut self) {
        for stack in self.usage.by_stack.values_mut() {
            *stack = stack.with_amount(Quantity::LiveBytes, Amount::default());
        }
    }

    fn add_range(&mut self, range: &ResidentRange, touched: &[Touched], pages: Pages<'_>) {
        self.residency.0.entry(range.kind).or_default().total.0 += range.bytes().0;
        let (mut at, end) = (range.begin.0, range.end.0);
        while at < end {
            let next = touched.partition_point(|touched| touched.end().0 <= at);
            let owner = touched.get(next).filter(|touched| touched.begin.0 < end);
            match owner {
                Some(owner) if owner.begin.0 <= at => {
                    let until = owner.end().0.min(end);
                    self.attribute(owner.key, range.kind, until - at, false);
                    at = until;
                }
                _ => {
                    let until = owner.map_or(end, |owner| owner.begin.0);
                    let window = if range.huge { HUGE } else { FAULT_AROUND };
                    let until = until.min((at / window + 1) * window);
                    self.add_untouched(at, until, range, touched, pages);
                    at = until;
                }
            }
        }
    }

    /// Adds resident pages without a recorded touch. All pages from `begin` to `end` are in one window.
    fn add_untouched(&mut self, begin: u64, end: u64, range: &ResidentRange, touched: &[Touched], pages: Pages<'_>) {
        let mut at = begin;
        while at < end {
            let next = pages.before.partition_point(|before| before.end.0 <= at);
            let before = pages.before.get(next).filter(|before| before.begin.0 < end);
            let (until, was_there) = match before {
                Some(before) if before.begin.0 <= at => (before.end.0.min(end), true),
                Some(before) => (before.begin.0, false),
                None => (end, false),
            };
            if was_there {
                self.residency.0.entry(range.kind).or_default().before.0 += until - at;
            } else if let Some(owner) = neighbour(at, range.huge, touched)
                && (pages.one_in == 1 || range.huge && is_touched_once(at, touched))
            {
                self.attribute(owner.key, range.kind, until - at, true);
            }
            at = until;
        }
    }

    /// Attributes resident bytes to the stack `key`. `mapped_along`: true if the kernel mapped the bytes along with
    /// a page that the stack touched.
    fn attribute(&mut self, key: StackKey, kind: MappingKind, bytes: u64, mapped_along: bool) {
        let mut pages = Amount { bytes: Bytes(bytes), count: bytes / PAGE.0 };
        if !mapped_along && let Some(stack) = self.usage.by_stack.get(&key) {
            // The page tables are read while the process runs, so they can have more pages than the totals. The
            // live totals must not exceed the touched pages.
            pages.count = pages.count.min(stack.free().count);
            pages.bytes = pages.bytes.min(stack.free().bytes);
        }
        // The sample chooses touched pages one by one, but all pages of a huge page at once. Each page of a huge
        // page has an equal share of the square of the number of pages.
        let squares = if mapped_along { pages.count.saturating_mul(HUGE / PAGE.0) } else { pages.count };
        let resident = self.residency.0.entry(kind).or_default();
        resident.with_stack.0 += pages.bytes.0;
        resident.variance = resident.variance.saturating_add(squares);
        let Some(stack) = self.usage.by_stack.get_mut(&key) else { return };
        if mapped_along {
            stack.add_amount(Quantity::AllocBytes, pages);
            stack[Quantity::AllocVariance] += squares;
        }
        stack.add_amount(Quantity::LiveBytes, pages);
        stack[Quantity::LiveVariance] += squares;
        if self.by_kind {
            self.move_to_kind(key, kind, pages, squares);
        }
    }

    /// Moves resident pages from the totals of the whole process to the totals of their kind of memory.
    fn move_to_kind(&mut self, key: StackKey, kind: MappingKind, pages: Amount, squares: u64) {
        let moved = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, pages)
            .with_amount(Quantity::AllocBytes, pages)
            .with(Quantity::LiveVariance, squares)
            .with(Quantity::AllocVariance, squares);
        if let Some(whole) = self.usage.by_stack.get_mut(&key) {
            *whole -= moved;
        }
        *self.usage.by_stack.entry(StackKey { part: Part::WHOLE.with_memory(kind), ..key }).or_default() += moved;
    }
}

/// Returns true if the sample has exactly one touched page in the huge page around `at`. Then this touch has mapped
/// the other pages. If the sample has several, the kernel has collapsed small pages that were touched one by one,
/// and other touches may be missing in the sample.
fn is_touched_once(at: u64, touched: &[Touched]) -> bool {
    let (begin, end) = (at / HUGE * HUGE, (at / HUGE + 1) * HUGE);
    let next = touched.partition_point(|touched| touched.end().0 <= begin);
    let inside = touched.iter().skip(next).take_while(|touched| touched.begin.0 < end);
    let pages = inside.map(|touched| (touched.end().0.min(end) - touched.begin.0.max(begin)) / PAGE.0);
    pages.sum::<u64>() == 1
}

/// Returns the touch that counts as the cause of the untouched page at `at`: the nearest touch below it in the
/// window, or else the nearest touch above it.
fn neighbour(at: u64, huge: bool, touched: &[Touched]) -> Option<&Touched> {
    let window = if huge { HUGE } else { FAULT_AROUND };
    let (begin, end) = (at / window * window, (at / window + 1) * window);
    let next = touched.partition_point(|touched| touched.end().0 <= at);
    let before = next.checked_sub(1).and_then(|last| touched.get(last)).filter(|last| last.end().0 > begin);
    before.or_else(|| touched.get(next).filter(|next| next.begin.0 < end))
}

#[cfg(test)]
mod tests;
