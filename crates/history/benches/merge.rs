//! Merging the snapshots of four shards that share their stacks.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_history::pipeline;
use memtrace_model::{
    AbsAddr, AllocatorId, Bytes, Event, EventClass, EventKind, Pid, Snapshot, Stack, StackEnd, StackId, TagId, Tick,
    Tid,
};

const SHARDS: u64 = 4;
const STACKS: u64 = 20_000;
const DEPTH: u64 = 30;

/// Snapshot of a shard. Each stack has allocations in every shard, but frames only in one.
fn snapshot(shard: u64) -> Snapshot {
    let mut ledger = Ledger::new(Settings::UNLIMITED);
    let mut apply = |kind| ledger.apply(&Event { pid: Pid(1), tid: Tid(1), tick: Tick(0), kind });
    for nth in 0..STACKS {
        let id = StackId(2 + nth.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let address = AbsAddr(0x7f00_0000_0000 + (nth * SHARDS + shard) * 64);
        apply(EventKind::Alloc {
            address,
            size: Bytes(64),
            stack: id,
            allocator: AllocatorId::UNKNOWN,
            tag: TagId::UNTAGGED,
        });
        if nth % SHARDS == shard {
            let frames = (0..DEPTH).map(|depth| AbsAddr(id.0 ^ depth)).collect();
            apply(EventKind::Stack {
                id,
                stack: Box::new(Stack { frames, end: StackEnd::Complete, taken: Duration::ZERO }),
            });
        }
    }
    ledger.snapshot(EventClass::Heap, Tick(0))
}

fn merge(criterion: &mut Criterion) {
    let shards: Vec<_> = (0..SHARDS).map(snapshot).collect();
    let mut group = criterion.benchmark_group("merge");
    group.throughput(Throughput::Elements(SHARDS * STACKS)).sample_size(20);
    group.bench_function("4_shards_of_20k_stacks", |bencher| {
        let merged = |shards: Vec<Snapshot>| {
            let mut all = Snapshot::default();
            shards.into_iter().for_each(|shard| all.merge(shard));
            pipeline::count_missing_frames(&mut all);
            all
        };
        bencher.iter_batched(|| shards.clone(), |shards| black_box(merged(shards)), BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, merge);
criterion_main!(benches);
