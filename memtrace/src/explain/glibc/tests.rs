//! Synthetic heaps. The privileged tests cover real ones.

use harness::fixtures::Anonymous;
use memtrace_model::{AbsAddr, Pid};

use super::*;

const HEAP: u64 = 64 << 20;
const PAGE: u64 = 4096;

/// Memory with a synthetic heap at `base`.
struct FakeHeap {
    memory: Anonymous,
    base: u64,
}

impl FakeHeap {
    fn new() -> Self {
        let memory = Anonymous::new(2 * HEAP);
        let base = memory.start().0.next_multiple_of(HEAP);
        Self { memory, base }
    }

    fn write(&self, at: u64, word: u64) {
        self.memory.write(self.base + at - self.memory.start().0, word);
    }

    /// Writes a `heap_info`, followed by the arena's state.
    fn heap_info(&self, words: [u64; 4]) {
        (0..).step_by(8).zip(words).for_each(|(at, word)| self.write(at, word));
    }

    fn region(&self) -> Region {
        let span = Span { start: AbsAddr(self.base), end: AbsAddr(self.base + HEAP) };
        Region { span, is_brk: false }
    }

    fn walk(&self) -> HeapWalk {
        walk_heap(&MemoryReader::open(Pid(std::process::id()), None).unwrap(), &[self.region()])
    }
}

#[test]
fn a_heap_is_detected_and_walked_to_its_end() {
    let heap = FakeHeap::new();
    let size = 4 * PAGE;
    heap.heap_info([heap.base + 48, 0, size, size]);
    // After an arena's state of 0x898 bytes: a chunk in use, a free one, one in use, and the top chunk.
    let first = 48 + 0x898 + 8;
    heap.write(first + 8, 0x30 | 5);
    heap.write(first + 0x38, 0x100 | 1);
    heap.write(first + 0x130, 0x100);
    heap.write(first + 0x138, 0x20 | 4);
    heap.write(first + 0x158, (size - first - 0x150) | 1);
    for page in 1..4 {
        heap.write(page * PAGE + 16, 0);
    }
    let HeapWalk { stats, spans, error } = heap.walk();
    let expected = HeapStats {
        in_use: Bytes(0x50),
        blocks: 2,
        free: Bytes(size - first - 0x50),
        own: Bytes(first),
        arenas: 1,
        in_use_resident: Bytes(0x50),
        ..HeapStats::default()
    };
    assert_eq!((stats, error), (expected, None));
    assert_eq!(spans, [heap.region().span], "the reserved range belongs to the heap");
}

#[test]
fn a_heap_with_mismatched_chunks_is_inconsistent() {
    let heap = FakeHeap::new();
    heap.heap_info([heap.base + 32, 0, 2 * PAGE, 2 * PAGE]);
    heap.write(32 + 0x890 + 8, 0x51);
    let walk = heap.walk();
    assert_eq!((walk.error, walk.stats.blocks, walk.stats.arenas), (Some(HeapError::Inconsistent), 0, 1));
    assert_eq!(walk.stats.undetermined, Bytes(PAGE), "one page was written to");
}

#[test]
fn invalid_heap_headers_are_rejected() {
    let heads: [fn(u64) -> [u64; 4]; 8] = [
        |base| [base + 8, 0, PAGE, PAGE],     // the state overlaps the header
        |base| [base + 32, base, PAGE, PAGE], // a first heap has no predecessor
        |base| [base + 32, 0, PAGE + 1, 2 * PAGE],
        |base| [base + 32, 0, 2 * PAGE, PAGE], // more is used than is accessible
        |base| [base + 32, 0, 0, PAGE],
        |base| [base + 32, 0, 2 * HEAP, 2 * HEAP],
        |base| [base.wrapping_sub(HEAP) + 32, base - HEAP, PAGE, PAGE], // the arena's first heap is in no region
        |_| [u64::MAX; 4],
    ];
    for (number, head) in heads.into_iter().enumerate() {
        let heap = FakeHeap::new();
        heap.heap_info(head(heap.base));
        let walk = heap.walk();
        assert_eq!((walk.stats, walk.spans.len(), walk.error), (HeapStats::default(), 0, None), "{number}");
    }
}

#[test]
fn mmapped_blocks_are_detected_by_consistent_headers() {
    let mapped_blocks = |at: u64, words: [u64; 2]| {
        let heap = FakeHeap::new();
        heap.write(at, words[0]);
        heap.write(at + 8, words[1]);
        let walk = heap.walk();
        (walk.stats.mapped_blocks, walk.stats.mapped.0)
    };
    assert_eq!(mapped_blocks(0, [0, 0x5000 | 2]), (1, 0x5000));
    assert_eq!(mapped_blocks(0, [0, 0x4ff0 | 2]), (1, 0x5000), "as in 2.43");
    assert_eq!(mapped_blocks(0x30, [0x30, 0x4fd0 | 2]), (1, 0x5000), "aligned to 64 bytes");
    assert_eq!(mapped_blocks(0x1ff0, [0x1ff0, 0x3010 | 2]), (1, 0x5000), "aligned to pages");
    assert_eq!(mapped_blocks(0x3000, [0, 0x5000 | 2]), (0, 0), "too small inside a region");
    assert_eq!(mapped_blocks(0x3000, [0, 0x50000 | 2]), (1, 0x50000));
    assert_eq!(mapped_blocks(0, [0, (HEAP + PAGE) | 2]), (0, 0), "beyond the end");
    assert_eq!(mapped_blocks(0, [0, !0xfff | 2]), (0, 0));
    assert_eq!(mapped_blocks(0, [0, 0x5000 | 3]), (0, 0));
    assert_eq!(mapped_blocks(0x3000, [0x1000, 0x50000 | 2]), (0, 0));
}

#[test]
fn memory_of_any_content_can_be_walked() {
    // xorshift64*, so that failures are reproducible.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    for _ in 0..50 {
        let heap = FakeHeap::new();
        for page in 0..4 {
            for at in (0..PAGE).step_by(8) {
                // Sizes are small multiples of 16 with flags.
                let word = if next() % 3 == 0 { next() } else { next() % 64 * 16 + next() % 8 };
                heap.write(page * PAGE + at, word);
            }
        }
        heap.heap_info([heap.base + 32 + next() % 3 * 16, 0, 4 * PAGE, 4 * PAGE]);
        let walk = heap.walk();
        let stats = walk.stats;
        assert!(stats.in_use.0 - stats.mapped.0 + stats.free.0 + stats.own.0 <= 4 * PAGE, "{stats:?}");
        assert_eq!(walk.spans, [heap.region().span]);
    }
}
