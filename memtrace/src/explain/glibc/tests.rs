//! Memory that only looks like glibc's, or that someone has made up. What glibc itself makes is in the privileged
//! tests.

use super::*;
use crate::model::{AbsAddr, Pid};
use crate::scratch::Anonymous;

const HEAP: u64 = 64 << 20;
const PAGE: u64 = 4096;

/// Memory of our own in which a heap may begin, and where.
struct Made {
    memory: Anonymous,
    base: u64,
}

impl Made {
    fn new() -> Self {
        let memory = Anonymous::new(2 * HEAP);
        let base = memory.start().0.next_multiple_of(HEAP);
        Self { memory, base }
    }

    fn write(&self, at: u64, word: u64) {
        self.memory.write(self.base + at - self.memory.start().0, word);
    }

    /// A `heap_info` whose arena's state follows it.
    fn heap_info(&self, words: [u64; 4]) {
        (0..).step_by(8).zip(words).for_each(|(at, word)| self.write(at, word));
    }

    fn region(&self) -> Region {
        let span = Span { start: AbsAddr(self.base), end: AbsAddr(self.base + HEAP) };
        Region { span, is_brk: false }
    }

    fn look(&self) -> Found {
        look(&Peek::open(Pid(std::process::id())).unwrap(), &[self.region()])
    }
}

#[test]
fn a_heap_is_told_by_its_head_and_walked_to_its_end() {
    let made = Made::new();
    let size = 4 * PAGE;
    made.heap_info([made.base + 48, 0, size, size]);
    // Behind an arena's state of 0x898 bytes: a chunk in use, a free one, one in use, and the rest.
    let first = 48 + 0x898 + 8;
    made.write(first + 8, 0x30 | 5);
    made.write(first + 0x38, 0x100 | 1);
    made.write(first + 0x130, 0x100);
    made.write(first + 0x138, 0x20 | 4);
    made.write(first + 0x158, (size - first - 0x150) | 1);
    for page in 1..4 {
        made.write(page * PAGE + 16, 0);
    }
    let Found { books, spans, trouble } = made.look();
    let expected = HeapStats {
        in_use: Bytes(0x50),
        blocks: 2,
        free: Bytes(size - first - 0x50),
        own: Bytes(first),
        arenas: 1,
        in_use_resident: Bytes(0x50),
        ..HeapStats::default()
    };
    assert_eq!((books, trouble), (expected, None));
    assert_eq!(spans, [made.region().span], "all that is reserved for a heap is the allocator's");
}

#[test]
fn a_heap_whose_blocks_do_not_fit_together_is_said_to_be_torn() {
    let made = Made::new();
    made.heap_info([made.base + 32, 0, 2 * PAGE, 2 * PAGE]);
    made.write(32 + 0x890 + 8, 0x51);
    let found = made.look();
    assert_eq!((found.trouble, found.books.blocks, found.books.arenas), (Some(Trouble::Torn), 0, 1));
    assert_eq!(found.books.undetermined, Bytes(PAGE), "one page was written to");
}

#[test]
fn what_is_no_head_of_a_heap_is_none() {
    let heads: [fn(u64) -> [u64; 4]; 8] = [
        |base| [base + 8, 0, PAGE, PAGE],     // the state overlaps the head
        |base| [base + 32, base, PAGE, PAGE], // a first heap has none before it
        |base| [base + 32, 0, PAGE + 1, 2 * PAGE],
        |base| [base + 32, 0, 2 * PAGE, PAGE], // more in use than was opened
        |base| [base + 32, 0, 0, PAGE],
        |base| [base + 32, 0, 2 * HEAP, 2 * HEAP],
        |base| [base.wrapping_sub(HEAP) + 32, base - HEAP, PAGE, PAGE], // of an arena that is nowhere
        |_| [u64::MAX; 4],
    ];
    for (number, head) in heads.into_iter().enumerate() {
        let made = Made::new();
        made.heap_info(head(made.base));
        let found = made.look();
        assert_eq!((found.books, found.spans.len(), found.trouble), (HeapStats::default(), 0, None), "{number}");
    }
}

#[test]
fn a_block_of_its_own_is_believed_where_it_begins_a_mapping_and_fits() {
    let told = |at: u64, words: [u64; 2]| {
        let made = Made::new();
        made.write(at, words[0]);
        made.write(at + 8, words[1]);
        let found = made.look();
        (found.books.mapped_blocks, found.books.mapped.0)
    };
    assert_eq!(told(0, [0, 0x5000 | 2]), (1, 0x5000));
    assert_eq!(told(0, [0, 0x4ff0 | 2]), (1, 0x5000), "as 2.43 has it");
    assert_eq!(told(0x30, [0x30, 0x4fd0 | 2]), (1, 0x5000), "aligned to 64 bytes");
    assert_eq!(told(0x1ff0, [0x1ff0, 0x3010 | 2]), (1, 0x5000), "aligned to pages");
    assert_eq!(told(0x3000, [0, 0x5000 | 2]), (0, 0), "too small for one that does not begin a mapping");
    assert_eq!(told(0x3000, [0, 0x50000 | 2]), (1, 0x50000));
    assert_eq!(told(0, [0, (HEAP + PAGE) | 2]), (0, 0), "beyond the end");
    assert_eq!(told(0, [0, !0xfff | 2]), (0, 0));
    assert_eq!(told(0, [0, 0x5000 | 3]), (0, 0));
    assert_eq!(told(0x3000, [0x1000, 0x50000 | 2]), (0, 0));
}

#[test]
fn memory_of_any_content_is_looked_at_without_harm() {
    // xorshift64*, so that a failure can be had again.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    for _ in 0..50 {
        let made = Made::new();
        for page in 0..4 {
            for at in (0..PAGE).step_by(8) {
                // Small multiples of 16 with flags are what sizes look like.
                let word = if next() % 3 == 0 { next() } else { next() % 64 * 16 + next() % 8 };
                made.write(page * PAGE + at, word);
            }
        }
        made.heap_info([made.base + 32 + next() % 3 * 16, 0, 4 * PAGE, 4 * PAGE]);
        let found = made.look();
        let books = found.books;
        assert!(books.in_use.0 - books.mapped.0 + books.free.0 + books.own.0 <= 4 * PAGE, "{books:?}");
        assert_eq!(found.spans, [made.region().span]);
    }
}
