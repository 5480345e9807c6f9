//! Applying events to a ledger of a million live blocks: events per second, and bytes per block.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use harness::Random;
use harness::heap::{self, CountingAllocator};
use memtrace_history::ledger::{BATCH, Ledger, Settings};
use memtrace_model::{AbsAddr, AllocatorId, Bytes, Event, EventKind, PartKeys, Pid, StackId, TagId, Tick, Tid};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BLOCKS: usize = 1_000_000;
const STACKS: u64 = 4096;

fn shuffle(random: &mut Random, addresses: &mut [u64]) {
    for last in (1..addresses.len()).rev() {
        addresses.swap(last, random.below(last + 1));
    }
}

fn alloc(address: u64) -> Event {
    let mixed = address.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
    let kind = EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(16 + (mixed & 0xff0)),
        stack: StackId(2 + (mixed % STACKS).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    Event { pid: Pid(4711), tid: Tid(4711), tick: Tick((mixed & 0xffff) as u32), kind }
}

fn free(address: u64) -> Event {
    Event {
        pid: Pid(4711),
        tid: Tid(4711),
        tick: Tick(0),
        kind: EventKind::Free { address: AbsAddr(address), is_last: false },
    }
}

fn churn(criterion: &mut Criterion, name: &str, settings: Settings) {
    let mut random = Random::new(1);
    // Two sets of distinct 16-byte aligned addresses in 64 GiB. The live blocks move from the first set to the
    // second set, one block at a time.
    let mut next = 0x7f00_0000_0000;
    let mut addresses: Vec<u64> = (0..2 * BLOCKS)
        .map(|_| {
            next += 16 * (1 + random.number() % 4096);
            next
        })
        .collect();
    shuffle(&mut random, &mut addresses);
    let (mut live, mut gone) = (addresses.split_off(BLOCKS), addresses);

    let before = heap::allocated();
    let mut ledger = Ledger::new(settings);
    for &address in &live {
        ledger.apply(&alloc(address));
    }
    let print_memory = |when: &str, ledger: &Ledger| {
        assert_eq!(ledger.live().count, BLOCKS as u64);
        assert_eq!(ledger.losses().total(), 0);
        let bytes = heap::allocated() - before;
        eprintln!("{name}: {:.1} bytes a live block {when}", bytes as f64 / BLOCKS as f64);
    };
    print_memory("when filled", &ledger);

    let mut batch = Vec::with_capacity(BATCH);
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(2 * BLOCKS as u64)).sample_size(20);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..iterations {
                shuffle(&mut random, &mut live);
                shuffle(&mut random, &mut gone);
                let start = std::time::Instant::now();
                for (old, new) in live.chunks(BATCH / 2).zip(gone.chunks(BATCH / 2)) {
                    for (&old, &new) in old.iter().zip(new) {
                        batch.push(black_box(free(old)));
                        batch.push(black_box(alloc(new)));
                    }
                    ledger.apply_all(&mut batch);
                }
                spent += start.elapsed();
                std::mem::swap(&mut live, &mut gone);
            }
            spent
        });
    });
    group.finish();
    print_memory("after the benchmark", &ledger);
}

fn ledger(criterion: &mut Criterion) {
    churn(criterion, "free_and_alloc_on_1M_live", Settings::UNLIMITED);
    churn(criterion, "free_and_alloc_on_1M_live_with_lifetimes", Settings { lifetimes: true, ..Settings::UNLIMITED });
    churn(criterion, "free_and_alloc_on_1M_live_with_peak", Settings { track_peak: true, ..Settings::UNLIMITED });
    // Accounts by thread, compared with totals by thread. There is only one thread.
    let by_thread = Settings { parts: PartKeys::THREAD, ..Settings::UNLIMITED };
    churn(criterion, "free_and_alloc_on_1M_live_by_thread", by_thread);
    let accounts = Settings { accounts: Some(PartKeys::THREAD), ..by_thread };
    churn(criterion, "free_and_alloc_on_1M_live_with_accounts", accounts);
}

criterion_group!(benches, ledger);
criterion_main!(benches);
