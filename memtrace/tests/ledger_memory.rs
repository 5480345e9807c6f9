//! What a ledger costs: at most 80 bytes of memory a live block, everything included, while it grows too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use memtrace::ledger::{Ledger, Settings};
use memtrace::model::{AbsAddr, AllocatorId, Bytes, Event, EventKind, PartitionBy, Pid, StackId, Tick, Tid};

/// Counts what is allocated, and the most that ever was.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCKS: u64 = 1_000_000;
const LIMIT: u64 = 80;
const STACKS: u64 = 4096;

fn event(kind: EventKind) -> Event {
    Event { pid: Pid(1), tid: Tid(1), tick: Tick(0), kind }
}

/// The nth of many distinct addresses, in no order: the factor is odd, so no two collide.
fn address(nth: u64) -> AbsAddr {
    AbsAddr(0x7000_0000_0000 + (nth.wrapping_mul(0x9E37_79B1) % (1 << 32)) * 16)
}

fn alloc(nth: u64) -> Event {
    event(EventKind::Alloc {
        address: address(nth),
        size: Bytes(nth % 512),
        stack: StackId(2 + nth % STACKS),
        allocator: AllocatorId::UNKNOWN,
    })
}

#[test]
fn live_block_costs_at_most_80_bytes_of_ledger() {
    let settings = Settings {
        blocks: BLOCKS,
        stacks: 1 << 20,
        processes: 16,
        track_peak: true,
        older: None,
        parts: PartitionBy::Whole,
    };
    let before = ALLOCATED.load(Ordering::Relaxed) as u64;
    let mut ledger = Ledger::new(settings);
    for nth in 0..BLOCKS {
        ledger.apply(alloc(nth));
        let most = MOST.load(Ordering::Relaxed) as u64 - before;
        // Below, what a ledger costs whether it is large or small would be divided among few.
        assert!(nth < 1 << 17 || most <= LIMIT * (nth + 1), "{most} bytes at {nth} blocks");
    }
    for nth in 0..BLOCKS {
        ledger.apply(event(EventKind::Free { address: address(nth) }));
        ledger.apply(alloc(BLOCKS + nth));
    }
    assert_eq!(ledger.live().count, BLOCKS);
    assert_eq!(ledger.losses().total(), 0);
    let most = MOST.load(Ordering::Relaxed) as u64 - before;
    assert!(most <= LIMIT * BLOCKS, "{most} bytes");
}
