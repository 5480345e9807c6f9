//! Resident share of the touched pages: compares page totals with the page tables. Pure.
//!
//! No event reports that a page is gone. The page tables show it: a page that was unmapped, released, moved or
//! reclaimed is not present. The kernel can map further pages along with a touched page: the rest of a huge page,
//! or up to 15 other cached pages of a file (`do_fault_around`, mm/memory.c). These pages are attributed to the
//! stack that touched the page.
//!
//! Huge pages are counted at their faults, even if pages are sampled. If the page tables show that such a page is not
//! huge any more, the kernel has split it, or small pages have taken its place. Then only the pages in the sample are
//! attributed, because all touches are known only for these pages. A huge page that khugepaged has made of small pages
//! (`collapse_huge_page`, mm/khugepaged.c) has no fault of its own, so its touched small pages count.

use memtrace_model::{
    Amount, Bytes, HUGE_PAGE, ImageUsage, MappingKind, PAGE, Part, Pid, Quantities, Quantity, Residency, ResidentRange,
    StackKey, Touched, TouchedPages, is_sampled,
};

/// Size and alignment of the fault-around window in bytes (`fault_around_pages`, mm/memory.c).
const FAULT_AROUND: u64 = 1 << 16;
/// Size of a huge page in bytes.
const HUGE: u64 = HUGE_PAGE.0;
/// Number and size of the small pages in a huge page.
const PAGES_OF_HUGE: Amount = Amount { bytes: HUGE_PAGE, count: HUGE / PAGE.0 };

/// Resident pages of a process, and properties of its page totals.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    /// Process of the pages.
    pub pid: Pid,
    /// Ranges that are resident now, ordered by address.
    pub now: &'a [ResidentRange],
    /// Ranges that were resident when tracing began, ordered by address; empty for processes that started later.
    pub before: &'a [ResidentRange],
    /// Sampling period N: one page in N is in the totals.
    pub one_in: u32,
    /// True if huge pages of anonymous memory are counted at their faults.
    pub counts_huge: bool,
    /// True if the totals are grouped by kind of memory.
    pub by_kind: bool,
}

/// Replaces the live totals of `usage`, which count all touched pages, by totals of the resident pages. Without
/// `pages`, the live totals do not change. If pages were sampled, scales all totals to estimates of the whole.
pub fn reconcile_pages(usage: &mut ImageUsage, pages: Option<Pages<'_>>, one_in: u32) {
    let touched = std::mem::take(&mut usage.touched);
    if let Some(pages) = pages {
        let mut attribution = Attribution {
            usage,
            by_kind: pages.by_kind,
            one_in: one_in.into(),
            split: None,
            residency: Residency::default(),
        };
        attribution.release_all();
        for range in pages.now {
            attribution.add_range(range, &touched, pages);
        }
        let residency = attribution.residency;
        usage.resident = Some(residency);
    }
    usage.by_stack.values_mut().for_each(|stack| scale_stack(stack, one_in.into()));
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
/// ranges of the process; `None` if they are unknown.
pub fn set_resident_bytes(usage: &mut ImageUsage, now: Option<&[ResidentRange]>) {
    let mapped = std::mem::take(&mut usage.touched);
    usage.resident_is_unknown = now.is_none() && !mapped.is_empty();
    for range in now.unwrap_or_default() {
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

/// Scales the totals of one stack, or their changes, in a sample of one page in `one_in`. Each page is chosen
/// independently. The variance follows the Horvitz-Thompson estimator ("A Generalization of Sampling Without
/// Replacement from a Finite Universe", 1952). Pages in huge pages were counted, so they are not scaled.
pub(crate) fn scale_stack(stack: &mut Quantities, one_in: u64) {
    let of_variance = i64::try_from(one_in * (one_in - 1)).unwrap_or(i64::MAX);
    let [live, alloc] = [Quantity::HugeLiveBytes, Quantity::HugeAllocBytes].map(|huge| stack[huge]);
    let pages = |bytes: u64| (bytes.cast_signed() / PAGE.0.cast_signed()).cast_unsigned();
    for quantity in Quantity::ALL {
        let value = stack[quantity];
        let counted = match quantity {
            Quantity::LiveBytes => live,
            Quantity::LiveCount => pages(live),
            Quantity::AllocBytes => alloc,
            Quantity::AllocCount => pages(alloc),
            Quantity::HugeLiveBytes | Quantity::HugeAllocBytes | Quantity::MergedStacks => value,
            _ => 0,
        };
        stack[quantity] = match quantity {
            // The change is negative if the totals of a stack were removed.
            Quantity::LiveVariance | Quantity::AllocVariance => {
                value.cast_signed().saturating_mul(of_variance).cast_unsigned()
            }
            _ => counted.wrapping_add(value.wrapping_sub(counted).wrapping_mul(one_in)),
        };
    }
}

/// Raises the number of touched pages to at least the number of live pages, and at least 0. When a huge page is split, an
/// estimate replaces its count, so the estimated change of the touched pages can be negative. It is also negative if the pages of
/// a process were left out since, because its blocks are sampled. Then the variance is negative as well.
pub(crate) fn raise_touches(stack: &mut Quantities) {
    stack[Quantity::AllocVariance] = stack[Quantity::AllocVariance].cast_signed().max(0).cast_unsigned();
    let [live, alloc] = [Quantity::LiveCount, Quantity::AllocCount].map(|count| stack[count].cast_signed());
    let least = live.max(0);
    if alloc < least {
        let count = least.cast_unsigned();
        *stack = stack.with_amount(Quantity::AllocBytes, Amount { bytes: Bytes(count * PAGE.0), count });
    }
}

/// Method of counting resident bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    /// The pages were touched, and are in the sample.
    Sampled,
    /// The bytes are in a huge page, which was counted at its fault.
    Huge,
    /// The kernel mapped the bytes along with a page in the sample.
    MappedAlong,
}

/// Attribution of resident pages to stacks.
struct Attribution<'a> {
    usage: &'a mut ImageUsage,
    by_kind: bool,
    /// Sampling period.
    one_in: u64,
    /// Address of the last huge page that was split.
    split: Option<u64>,
    residency: Residency,
}

impl Attribution<'_> {
    /// Counts all touched pages as released; [`Self::attribute`] makes the resident ones live again.
    fn release_all(&mut self) {
        for stack in self.usage.by_stack.values_mut() {
            *stack = stack.with_amount(Quantity::LiveBytes, Amount::default()).with(Quantity::HugeLiveBytes, 0);
        }
    }

    fn add_range(&mut self, range: &ResidentRange, touched: &[Touched], pages: Pages<'_>) {
        self.residency.0.entry(range.kind).or_default().total.0 += range.bytes().0;
        let (mut at, end) = (range.begin.0, range.end.0);
        while at < end {
            let next = touched.partition_point(|touched| touched.end().0 <= at);
            let owner = touched.get(next).filter(|touched| touched.begin.0 < end);
            match owner {
                Some(owner) if owner.begin.0 <= at && owner.huge => {
                    let until = owner.end().0.min(end).min((at / HUGE + 1) * HUGE);
                    self.add_huge(owner.key, range, [at, until], pages);
                    at = until;
                }
                Some(owner) if owner.begin.0 <= at => {
                    let until = owner.end().0.min(end);
                    self.attribute(owner.key, range.kind, until - at, Counting::Sampled);
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

    /// Adds resident bytes from `begin` to `end`. They are in one huge page that was counted at its fault.
    fn add_huge(&mut self, key: StackKey, range: &ResidentRange, [begin, end]: [u64; 2], pages: Pages<'_>) {
        if range.huge || pages.one_in == 1 {
            self.attribute(key, range.kind, end - begin, Counting::Huge);
        } else {
            self.split(key, begin / HUGE * HUGE, pages);
            self.attribute(key, range.kind, sampled(begin, end, pages) * PAGE.0, Counting::Sampled);
        }
    }

    /// Replaces the touch of the huge page at `begin` by touches of its small pages that are in the sample.
    fn split(&mut self, key: StackKey, begin: u64, pages: Pages<'_>) {
        if self.split.replace(begin) == Some(begin) {
            return;
        }
        let Some(stack) = self.usage.by_stack.get_mut(&key) else { return };
        let count = sampled(begin, begin + HUGE, pages);
        stack.subtract_amount(Quantity::AllocBytes, PAGES_OF_HUGE);
        stack.add_amount(Quantity::AllocBytes, Amount { bytes: Bytes(count * PAGE.0), count });
        let changes =
            Quantities::ZERO.with(Quantity::HugeAllocBytes, HUGE.wrapping_neg()).with(Quantity::AllocVariance, count);
        *stack += changes;
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
                && (pages.one_in == 1 || pages.estimates_huge(range) && is_touched_once(at, touched))
            {
                self.attribute(owner.key, range.kind, until - at, Counting::MappedAlong);
            }
            at = until;
        }
    }

    /// Attributes resident bytes to the stack `key`.
    fn attribute(&mut self, key: StackKey, kind: MappingKind, bytes: u64, counting: Counting) {
        let mut pages = Amount { bytes: Bytes(bytes), count: bytes / PAGE.0 };
        if counting != Counting::MappedAlong
            && let Some(stack) = self.usage.by_stack.get(&key)
        {
            // The page tables are read while the process runs, so they can have more pages than the totals. The
            // live totals must not exceed the touched pages.
            pages.count = pages.count.min(stack.free().count);
            pages.bytes = pages.bytes.min(stack.free().bytes);
        }
        // Touched pages are sampled one by one. The pages that were mapped along with a touched page are sampled all at
        // once, so each of them has an equal share of the square of the number of pages. A huge page that was counted
        // at its fault is not sampled.
        let squares = match counting {
            Counting::Sampled => pages.count,
            Counting::Huge => 0,
            Counting::MappedAlong => pages.count.saturating_mul(PAGES_OF_HUGE.count),
        };
        let (stands_for, huge) = match counting {
            Counting::Huge => (1, pages.bytes.0),
            Counting::Sampled | Counting::MappedAlong => (self.one_in, 0),
        };
        let resident = self.residency.0.entry(kind).or_default();
        resident.with_stack.0 += pages.bytes.0 * stands_for;
        resident.counted.0 += huge;
        let variance = squares.saturating_mul(self.one_in * (self.one_in - 1));
        resident.variance = resident.variance.saturating_add(variance);
        let live = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, pages)
            .with(Quantity::LiveVariance, squares)
            .with(Quantity::HugeLiveBytes, huge);
        let touched = Quantities::ZERO.with_amount(Quantity::AllocBytes, pages).with(Quantity::AllocVariance, squares);
        let Some(stack) = self.usage.by_stack.get_mut(&key) else { return };
        *stack += live;
        if counting == Counting::MappedAlong {
            *stack += touched;
        }
        if self.by_kind {
            // The resident pages move from the totals of the whole process to the totals of their kind of memory.
            let mut moved = live;
            moved += touched.with(Quantity::HugeAllocBytes, huge);
            *stack -= moved;
            let part = Part::WHOLE.with_memory(kind);
            *self.usage.by_stack.entry(StackKey { part, ..key }).or_default() += moved;
        }
    }
}

impl Pages<'_> {
    /// Returns true if the size of a huge page in `range` is estimated from its touched page, because huge pages of
    /// this kind are not counted at their faults. Huge pages of files and of shared memory are mapped by other
    /// functions (`do_set_pmd`, mm/memory.c).
    const fn estimates_huge(&self, range: &ResidentRange) -> bool {
        range.huge && (!self.counts_huge || matches!(range.kind, MappingKind::File | MappingKind::Shmem))
    }
}

/// Returns the number of pages from `begin` to `end` that are in the sample.
fn sampled(begin: u64, end: u64, pages: Pages<'_>) -> u64 {
    let all = (begin..end).step_by(PAGE.0 as usize);
    all.filter(|&page| is_sampled(pages.pid.0, page, pages.one_in)).count() as u64
}

/// Returns true if the sample has exactly one touched page in the huge page around `at`. Then this touch has mapped
/// the other pages. If the sample has several touched pages there, the kernel has collapsed small pages that were
/// touched one by one, and other touches may be missing in the sample.
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
