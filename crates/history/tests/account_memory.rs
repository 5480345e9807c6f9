//! Memory use of the accounts of a ledger.

use harness::heap::{self, CountingAllocator};
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_model::{AbsAddr, AllocatorId, Bytes, Event, EventKind, PartKeys, Pid, StackId, TagId, Tick, Tid};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const THREADS: u32 = 50_000;
const LIMIT: usize = 220;

/// Returns the memory of a ledger after each thread has allocated a block, in bytes.
fn memory(accounts: Option<PartKeys>) -> usize {
    let before = heap::allocated();
    let mut ledger = Ledger::new(Settings { parts: PartKeys::THREAD, accounts, ..Settings::UNLIMITED });
    for tid in 0..THREADS {
        let (address, size) = (AbsAddr(0x7000_0000_0000 + u64::from(tid) * 16), Bytes(10));
        let kind = EventKind::Alloc {
            address,
            size,
            stack: StackId::NOT_TAKEN,
            allocator: AllocatorId::UNKNOWN,
            tag: TagId::UNTAGGED,
        };
        ledger.apply(&Event { pid: Pid(1), tid: Tid(tid + 1), tick: Tick(0), kind });
    }
    assert_eq!((ledger.live().count, ledger.losses().total()), (u64::from(THREADS), 0));
    heap::allocated() - before
}

#[test]
fn account_takes_at_most_220_bytes_of_ledger() {
    let bytes = (memory(Some(PartKeys::THREAD)) - memory(None)) / THREADS as usize;
    println!("{bytes} bytes for each account");
    assert!(bytes <= LIMIT, "{bytes} bytes");
}
