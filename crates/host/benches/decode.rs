//! Benchmark of the decoder: records per second.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memtrace_common::wire::{End, RecordKind};
use memtrace_host::kernel::decode::decode;

/// Returns a record in ring format: kind, thread, process and tick with 32 bits each, then 64-bit words.
fn record(kind: RecordKind, words: &[u64]) -> Vec<u8> {
    let header = [kind as u32, 4712, 4711, 9];
    let header = header.iter().flat_map(|half| half.to_ne_bytes());
    header.chain(words.iter().flat_map(|word| word.to_ne_bytes())).collect()
}

fn stack(frames: u64) -> Vec<u8> {
    let count_and_end = frames | (End::Generated as u64) << 32;
    let frames = (0..frames).map(|frame| 0x5500_0000_0000 + frame * 64);
    let words: Vec<u64> = [0x9E37_79B9_7F4A_7C15, count_and_end, 0].into_iter().chain(frames).collect();
    record(RecordKind::Stack, &words)
}

fn decoding(criterion: &mut Criterion) {
    let records = [
        ("alloc", record(RecordKind::Alloc, &[0x7f00_0000_1000, 64, 0x9E37_79B9_7F4A_7C15])),
        ("free", record(RecordKind::Free, &[0x7f00_0000_1000])),
        ("stack_of_5", stack(5)),
        ("stack_of_50", stack(50)),
    ];
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    for (name, record) in records {
        assert!(decode(&record).is_ok(), "{name} is not a valid record");
        group.bench_with_input(BenchmarkId::from_parameter(name), &record, |bencher, record| {
            bencher.iter(|| decode(black_box(record)));
        });
    }
    group.finish();
}

criterion_group!(benches, decoding);
criterion_main!(benches);
