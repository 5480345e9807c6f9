//! What of the pages that were touched is resident. Pure: the kernel's page tables, as they were read, against the books.
//!
//! That pages go is not heard of, and need not be: unmapped, given back, moved or taken by the kernel, they are gone from
//! the page tables. What the kernel brings along with a page that is touched belongs to who touched it: the rest of a
//! large page, and up to 16 pages of a file that it holds already (`do_fault_around`, mm/memory.c).

use crate::model::{
    Amount, Bytes, ImageUsage, MappingKind, PAGE, Partition, Residency, ResidentRange, StackKey, Touched, Usage,
    Variance,
};

/// The kernel maps pages of a file around one within so many bytes (`fault_around_pages`, mm/memory.c), aligned to as many.
const AROUND: u64 = 1 << 16;
/// A large page, as page tables map it.
const HUGE: u64 = 1 << 21;

/// What is known of a process' pages beside its books.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    /// What is resident, in order.
    pub now: &'a [ResidentRange],
    /// What was, when tracing began, in order; nothing of processes that began later.
    pub before: &'a [ResidentRange],
    /// Of pages one in so many is in the books.
    pub one_in: u32,
    /// Whether the books are to be told apart by the kind of memory.
    pub by_kind: bool,
}

/// Makes the live numbers of `usage`, which are those of all pages that were touched, the numbers of those that are resident;
/// where pages were sampled, makes all its numbers estimates of the whole.
pub(crate) fn settle(usage: &mut ImageUsage, pages: Option<Pages<'_>>, one_in: u32) {
    let touched = std::mem::take(&mut usage.touched);
    if let Some(pages) = pages {
        let mut live = Live { usage, by_kind: pages.by_kind, residence: Residency::default() };
        live.forget();
        for range in pages.now {
            live.take(range, &touched, pages);
        }
        let residence = live.residence;
        usage.resident = Some(residence);
    }
    estimate(usage, u64::from(one_in));
    usage.total = usage.by_stack.values().fold(Usage::default(), |mut sum, stack| {
        sum += stack.usage;
        sum
    });
}

/// Notes how much of the mappings in `usage`, by whoever has mapped them, is resident `now`.
pub(crate) fn note_resident(usage: &mut ImageUsage, now: &[ResidentRange]) {
    let mapped = std::mem::take(&mut usage.touched);
    for range in now {
        let first = mapped.partition_point(|mapped| mapped.end() <= range.begin);
        for mapped in mapped.iter().skip(first).take_while(|mapped| mapped.begin < range.end) {
            let bytes = mapped.end().0.min(range.end.0) - mapped.begin.0.max(range.begin.0);
            if let Some(stack) = usage.by_stack.get_mut(&mapped.key) {
                stack.resident.0 += bytes;
            }
        }
    }
}

/// A sample of one in `one_in`, each page chosen by itself, stands for so many; the variance of the number of pages is that
/// of such a sample (Horvitz and Thompson, "A Generalization of Sampling Without Replacement from a Finite Universe", 1952).
fn estimate(usage: &mut ImageUsage, one_in: u64) {
    let times = |amount: Amount| Amount { bytes: Bytes(amount.bytes.0 * one_in), count: amount.count * one_in };
    for stack in usage.by_stack.values_mut() {
        let Usage { live, alloc, free, .. } = stack.usage;
        stack.usage = Usage { live: times(live), alloc: times(alloc), free: times(free), ..Usage::default() };
        stack.major_faults *= one_in;
        stack.variance = stack.variance.scaled(one_in * (one_in - 1));
    }
    for kind in usage.resident.iter_mut().flat_map(|residence| residence.0.values_mut()) {
        kind.with_stack.0 *= one_in;
        kind.variance = kind.variance.saturating_mul(one_in * (one_in - 1));
    }
}

/// The live numbers as they are found.
struct Live<'a> {
    usage: &'a mut ImageUsage,
    by_kind: bool,
    residence: Residency,
}

impl Live<'_> {
    /// Nothing is resident, until it is found to be.
    fn forget(&mut self) {
        for stack in self.usage.by_stack.values_mut() {
            stack.usage = Usage { live: Amount::default(), free: stack.usage.alloc, ..stack.usage };
        }
    }

    fn take(&mut self, range: &ResidentRange, touched: &[Touched], pages: Pages<'_>) {
        self.residence.0.entry(range.kind).or_default().total.0 += range.bytes().0;
        let (mut at, end) = (range.begin.0, range.end.0);
        while at < end {
            let next = touched.partition_point(|touched| touched.end().0 <= at);
            let owner = touched.get(next).filter(|touched| touched.begin.0 < end);
            match owner {
                Some(owner) if owner.begin.0 <= at => {
                    let until = owner.end().0.min(end);
                    self.found(owner.key, range.kind, until - at, false);
                    at = until;
                }
                _ => {
                    let until = owner.map_or(end, |owner| owner.begin.0);
                    let window = if range.huge { HUGE } else { AROUND };
                    let until = until.min((at / window + 1) * window);
                    self.untouched(at, until, range, touched, pages);
                    at = until;
                }
            }
        }
    }

    /// Pages that nobody has touched, all in one window.
    fn untouched(&mut self, begin: u64, end: u64, range: &ResidentRange, touched: &[Touched], pages: Pages<'_>) {
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
                self.residence.0.entry(range.kind).or_default().before.0 += until - at;
            } else if let Some(owner) = neighbour(at, range.huge, touched)
                && (pages.one_in == 1 || range.huge && is_touched_once(at, touched))
            {
                self.found(owner.key, range.kind, until - at, true);
            }
            at = until;
        }
    }

    /// `bytes` belong to `key`; `along`: they came with a page that it touched.
    fn found(&mut self, key: StackKey, kind: MappingKind, bytes: u64, along: bool) {
        let pages = Amount { bytes: Bytes(bytes), count: bytes / PAGE.0 };
        // Pages that were touched were chosen one by one, those of a large one all at once: the square of their number is shared
        // among them.
        let squares = if along { pages.count.saturating_mul(HUGE / PAGE.0) } else { pages.count };
        let resident = self.residence.0.entry(kind).or_default();
        resident.with_stack.0 += bytes;
        resident.variance = resident.variance.saturating_add(squares);
        let Some(stack) = self.usage.by_stack.get_mut(&key) else { return };
        if along {
            stack.usage.alloc += pages;
            stack.variance.alloc += squares;
        } else {
            stack.usage.free -= pages;
        }
        stack.usage.live += pages;
        stack.variance.live += squares;
        if self.by_kind {
            self.set_apart(key, kind, pages, squares);
        }
    }

    /// Has what is resident under its kind of memory, not under the whole process.
    fn set_apart(&mut self, key: StackKey, kind: MappingKind, pages: Amount, squares: u64) {
        let variance = Variance { live: squares, alloc: squares };
        if let Some(whole) = self.usage.by_stack.get_mut(&key) {
            whole.usage.live -= pages;
            whole.usage.alloc -= pages;
            whole.variance -= variance;
        }
        let part = self.usage.by_stack.entry(StackKey { part: Partition::Memory(kind), ..key }).or_default();
        part.usage.live += pages;
        part.usage.alloc += pages;
        part.variance += variance;
    }
}

/// Whether one page of the large page around `at` was touched: that brought the others. Where there are more in the sample, the
/// kernel has put small pages together, which were touched one by one; and who brought small ones may not be in the sample.
fn is_touched_once(at: u64, touched: &[Touched]) -> bool {
    let (begin, end) = (at / HUGE * HUGE, (at / HUGE + 1) * HUGE);
    let next = touched.partition_point(|touched| touched.end().0 <= begin);
    let within = touched.iter().skip(next).take_while(|touched| touched.begin.0 < end);
    let pages = within.map(|touched| (touched.end().0.min(end) - touched.begin.0.max(begin)) / PAGE.0);
    pages.sum::<u64>() == 1
}

/// Whose touch has brought the page at `at`, which nobody has touched: the nearest before it, or else behind it.
fn neighbour(at: u64, huge: bool, touched: &[Touched]) -> Option<&Touched> {
    let window = if huge { HUGE } else { AROUND };
    let (begin, end) = (at / window * window, (at / window + 1) * window);
    let next = touched.partition_point(|touched| touched.end().0 <= at);
    let before = next.checked_sub(1).and_then(|last| touched.get(last)).filter(|last| last.end().0 > begin);
    before.or_else(|| touched.get(next).filter(|next| next.begin.0 < end))
}

#[cfg(test)]
mod tests;
