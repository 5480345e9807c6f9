//! Memory of the stacks of a heap profile that a target keeps. Each counts as two stacks.

use std::time::Duration;

use harness::heap::{self, CountingAllocator};
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_model::{
    AbsAddr, AllocatorId, Bytes, Event, EventKind, ImageId, Pid, ProfileChange, SampleSum, Stack, StackEnd, StackId,
    Tick, Tid,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Number of stacks: the tables are little more than half full.
const STACKS: u64 = 10_000;

/// Maximum bytes of a stack with changes since the last delta: twice the bytes of a stack of exact blocks
/// (`tests/stack_memory.rs`).
const MOST: u64 = 1024;

const ID: ImageId = ImageId { pid: Pid(7), ordinal: 0 };

fn event(kind: EventKind) -> Event {
    Event { pid: ID.pid, tid: Tid(7), tick: Tick(1), kind }
}

fn id(nth: u64) -> StackId {
    StackId(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(nth + 1) | 2)
}

/// Returns a reading: a block of each stack was sampled.
fn reading(number: u32) -> Event {
    let alloc = SampleSum::of_poisson(1, Bytes(1 << 10), Bytes(512 << 10), 7);
    let (allocator, free) = (AllocatorId::UNKNOWN, SampleSum::default());
    let changes = (0..STACKS).map(|nth| ProfileChange { stack: id(nth), allocator, alloc, free }).collect();
    event(EventKind::HeapProfile { image: ID, reading: number, changes })
}

#[test]
fn a_stack_of_a_profile_takes_the_memory_of_two() {
    let mut ledger = Ledger::new(Settings { stacks: 2 * STACKS as u32, ..Settings::UNLIMITED }).with_deltas();
    let before = heap::allocated();
    for nth in 0..STACKS {
        // Ten of the twenty frames occur in this stack only.
        let own = (0..10).map(|depth| 1000 + nth * 10 + depth);
        let frames = own.chain(0..10).map(|call| AbsAddr(0x5500_0000_0001 + call * 4)).collect();
        let stack = Box::new(Stack { frames, end: StackEnd::Complete, taken: Duration::ZERO });
        ledger.apply(&event(EventKind::Stack { id: id(nth), stack }));
    }
    ledger.apply(&reading(0));
    drop(ledger.take_delta(Tick(2)));
    ledger.apply(&reading(1));
    assert_eq!((ledger.losses().total(), ledger.live().bytes.0 >> 30), (0, 9));
    let bytes = (heap::allocated() - before) as u64 / STACKS;
    println!("{bytes} bytes for each stack");
    assert!(bytes <= MOST, "{bytes} bytes for each stack");
}
