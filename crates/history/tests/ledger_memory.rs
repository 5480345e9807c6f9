//! Memory use of a ledger: at most 80 bytes per live block in total, including while it grows.

use harness::heap::{self, CountingAllocator};
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_model::{AbsAddr, AllocatorId, Bytes, Event, EventKind, PartKeys, Pid, StackId, TagId, Tick, Tid};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BLOCKS: u64 = 1_000_000;
const LIMIT: u64 = 80;
const STACKS: u64 = 4096;

fn event(kind: EventKind) -> Event {
    Event { pid: Pid(1), tid: Tid(1), tick: Tick(0), kind }
}

/// Returns the nth of many distinct addresses in pseudorandom order. The factor is odd, so no two are equal.
fn address(nth: u64) -> AbsAddr {
    AbsAddr(0x7000_0000_0000 + (nth.wrapping_mul(0x9E37_79B1) % (1 << 32)) * 16)
}

fn alloc(nth: u64) -> Event {
    event(EventKind::Alloc {
        address: address(nth),
        size: Bytes(nth % 512),
        stack: StackId(2 + nth % STACKS),
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
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
        lifetimes: false,
        page_sample: 1,
        parts: PartKeys::NONE,
        accounts: None,
    };
    let before = heap::allocated() as u64;
    let mut ledger = Ledger::new(settings);
    for nth in 0..BLOCKS {
        ledger.apply(&alloc(nth));
        let peak = heap::peak() as u64 - before;
        // With fewer blocks, the fixed cost of a ledger dominates.
        assert!(nth < 1 << 17 || peak <= LIMIT * (nth + 1), "{peak} bytes at {nth} blocks");
    }
    for nth in 0..BLOCKS {
        ledger.apply(&event(EventKind::Free { address: address(nth), is_last: false }));
        ledger.apply(&alloc(BLOCKS + nth));
    }
    assert_eq!(ledger.live().count, BLOCKS);
    assert_eq!(ledger.losses().total(), 0);
    let peak = heap::peak() as u64 - before;
    assert!(peak <= LIMIT * BLOCKS, "{peak} bytes");
}
