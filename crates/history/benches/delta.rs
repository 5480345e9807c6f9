//! A delta of 10,000 changed stacks out of a million.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_model::{AbsAddr, AllocatorId, Bytes, Event, EventKind, Pid, StackId, TagId, Tick, Tid};

const STACKS: u64 = 1_000_000;
const CHANGED: u64 = 10_000;

/// Returns an event of block `nth`, which has stack `nth`.
fn event(nth: u64, kind: impl FnOnce(AbsAddr, StackId) -> EventKind) -> Event {
    let stack = StackId(2 + nth.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Event { pid: Pid(1), tid: Tid(1), tick: Tick(0), kind: kind(AbsAddr(0x7f00_0000_0000 + nth * 64), stack) }
}

fn alloc(address: AbsAddr, stack: StackId) -> EventKind {
    EventKind::Alloc { address, size: Bytes(64), stack, allocator: AllocatorId::UNKNOWN, tag: TagId::UNTAGGED }
}

fn delta(criterion: &mut Criterion) {
    let mut ledger = Ledger::new(Settings::UNLIMITED).with_deltas();
    (0..STACKS).for_each(|nth| ledger.apply(&event(nth, alloc)));
    ledger.take_delta(Tick(0));
    let mut group = criterion.benchmark_group("delta");
    group.throughput(Throughput::Elements(CHANGED)).sample_size(20);
    let mut first = 0;
    group.bench_function("10k_of_1M_stacks", |bencher| {
        bencher.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                // Each interval changes stacks that the previous one did not change. They are spread over the table.
                first = (first + 1) % (STACKS / CHANGED);
                for nth in (first..STACKS).step_by((STACKS / CHANGED) as usize) {
                    ledger.apply(&event(nth, |address, _| EventKind::Free { address, is_last: false }));
                    ledger.apply(&event(nth, alloc));
                }
                let start = Instant::now();
                let delta = black_box(ledger.take_delta(Tick(0)));
                spent += start.elapsed();
                let stacks: usize =
                    delta.usage.values().flat_map(|images| images.values()).map(|image| image.by_stack.len()).sum();
                assert_eq!(stacks as u64, CHANGED);
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, delta);
criterion_main!(benches);
