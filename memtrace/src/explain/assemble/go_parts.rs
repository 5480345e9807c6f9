//! Divides the memory of a Go program by the totals of its runtime.

use memtrace_model::{Bytes, GoSizes, GoTotals, MemorySizes};

/// Divides memory. `arenas`: VMAs of the arenas. `outside`: memory that the runtime has mapped for itself.
///
/// The runtime counts spans, not pages. The resident memory is attributed first to stacks, buffers of the collector and spans in
/// use, since the program touches them, and last to idle spans. So the memory that can be returned is not overstated.
pub(super) fn divide(totals: GoTotals, arenas: MemorySizes, outside: MemorySizes) -> GoSizes {
    let mut left = arenas.resident;
    let mut take = |most: Bytes| {
        let taken = most.min(left);
        left.0 -= taken.0;
        taken
    };
    let part = |reserved, resident| MemorySizes { reserved, resident, ..MemorySizes::default() };
    let stacks = part(totals.stacks, take(totals.stacks));
    let buffers = part(totals.work_buffers, take(totals.work_buffers));
    let (in_use_resident, idle_resident) = (take(totals.in_use), take(totals.idle));
    let mut heap = arenas.without(stacks).without(buffers);
    // The freed pages that the kernel counts belong to released spans, so the resident idle spans are added.
    heap.returnable = Bytes(heap.returnable.0 + idle_resident.0).min(heap.resident);
    let mut own = outside;
    own += buffers;
    GoSizes { totals, heap, stacks, own, in_use_resident, idle_resident }
}

/// Returns the part of `memory` that has at most `most` mapped bytes, and as many resident ones as possible.
pub(super) fn part_of(memory: MemorySizes, most: Bytes) -> MemorySizes {
    let reserved = memory.reserved.min(most);
    let resident = memory.resident.min(reserved);
    MemorySizes {
        reserved,
        resident,
        swap: memory.swap.min(Bytes(reserved.0 - resident.0)),
        huge: memory.huge.min(resident),
        returnable: memory.returnable.min(resident),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 8192;

    const fn pages(number: u64) -> Bytes {
        Bytes(number * PAGE)
    }

    fn sizes(reserved: u64, resident: u64) -> MemorySizes {
        MemorySizes { reserved: pages(reserved), resident: pages(resident), ..MemorySizes::default() }
    }

    fn totals() -> GoTotals {
        GoTotals {
            in_use: pages(40),
            idle: pages(20),
            released: pages(30),
            stacks: pages(6),
            work_buffers: pages(4),
            ..GoTotals::default()
        }
    }

    #[test]
    fn memory_is_divided_by_the_totals() {
        let GoSizes { heap, stacks, own, in_use_resident, idle_resident, .. } =
            divide(totals(), sizes(100, 70), sizes(9, 7));
        assert_eq!((stacks, own), (sizes(6, 6), sizes(13, 11)));
        assert_eq!((in_use_resident, idle_resident), (pages(40), pages(20)));
        assert_eq!(heap, MemorySizes { returnable: pages(20), ..sizes(90, 60) });
    }

    #[test]
    fn idle_spans_are_the_last_to_be_resident() {
        let parts = |resident| {
            let parts = divide(totals(), sizes(100, resident), MemorySizes::default());
            assert_eq!(parts.heap.resident.0 + parts.stacks.resident.0 + parts.own.resident.0, resident * PAGE);
            assert_eq!(parts.heap.reserved.0 + parts.stacks.reserved.0 + parts.own.reserved.0, 100 * PAGE);
            [parts.stacks.resident, parts.own.resident, parts.in_use_resident, parts.idle_resident]
                .map(|resident| resident.0 / PAGE)
        };
        assert_eq!(parts(65), [6, 4, 40, 15]);
        assert_eq!(parts(30), [6, 4, 20, 0]);
        assert_eq!(parts(7), [6, 1, 0, 0]);
        assert_eq!(parts(0), [0; 4]);
        // Released pages can be resident too.
        assert_eq!(parts(90), [6, 4, 40, 20]);
    }

    #[test]
    fn freed_pages_are_returnable_with_the_idle_spans() {
        let arenas = MemorySizes { returnable: pages(15), swap: pages(2), huge: pages(3), ..sizes(100, 85) };
        let parts = divide(totals(), arenas, MemorySizes::default());
        let heap = MemorySizes { returnable: pages(35), swap: pages(2), huge: pages(3), ..sizes(90, 75) };
        assert_eq!(parts.heap, heap);
    }

    #[test]
    fn part_has_as_many_resident_bytes_as_possible() {
        let memory = MemorySizes { swap: pages(3), huge: pages(9), returnable: pages(1), ..sizes(20, 10) };
        let part = MemorySizes { swap: pages(2), huge: pages(9), returnable: pages(1), ..sizes(12, 10) };
        assert_eq!(part_of(memory, pages(12)), part);
        let part = MemorySizes { huge: pages(5), returnable: pages(1), ..sizes(5, 5) };
        assert_eq!(part_of(memory, pages(5)), part);
        assert_eq!((part_of(memory, pages(50)), part_of(memory, Bytes(0))), (memory, MemorySizes::default()));
    }
}
