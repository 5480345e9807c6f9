use std::collections::BTreeMap;

use memtrace_model::{AllocatorId, Amount, Bytes, MappingKind, PartKeys, SampleSum, TagId, Tid};
use proptest::prelude::*;

use super::*;

/// Numbers of every length, zero included.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..=64_u32).prop_map(|(number, bits)| number.checked_shr(bits).unwrap_or(0))
}

fn key() -> impl Strategy<Value = PathKey> {
    let all = (any::<u32>(), any::<u16>(), any::<u16>(), prop::sample::select(&MappingKind::ALL[..])).prop_map(
        |(tid, id, tag, kind)| {
            Part::WHOLE.with_thread(Tid(tid)).with_allocator(AllocatorId(id)).with_tag(TagId(tag)).with_memory(kind)
        },
    );
    let keys = prop::collection::vec(prop::sample::select(&PartKey::ALL[..]), 0..=PartKey::ALL.len())
        .prop_map(|keys| keys.iter().fold(PartKeys::NONE, |keys, key| keys.union(key.flag)));
    let part = (all, keys).prop_map(|(all, keys)| all.restricted_to(keys));
    (prop_oneof![0..4_u32, any::<u32>()], prop::sample::select(StackEnd::ALL), part)
        .prop_map(|(path, end, part)| PathKey { path: Node::from_number(path), end, part })
}

fn entries() -> impl Strategy<Value = Vec<(PathKey, PathUsage)>> {
    let quantity = prop::sample::select(&BlockQuantity::ALL[..]);
    let bucket = (quantity, 0..64_u32, number().prop_map(|count| count >> 10))
        .prop_map(|(quantity, log2, count)| (quantity, Log2::from_number(log2).unwrap(), count));
    let histograms = prop::collection::vec(bucket, 0..10).prop_map(BlockHistograms::from_iter);
    let values = prop::collection::vec(number(), Quantity::ALL.len());
    let usage = (values, histograms).prop_map(|(values, histograms)| {
        let usage = Quantity::ALL.into_iter().zip(values);
        let usage = usage.fold(Quantities::ZERO, |usage, (quantity, value)| usage.with(quantity, value));
        PathUsage { usage, histograms }
    });
    prop::collection::vec((key(), usage), 0..20)
}

fn sums<'a>(entries: impl IntoIterator<Item = &'a (PathKey, PathUsage)>) -> BTreeMap<PathKey, PathUsage> {
    let mut sums: BTreeMap<PathKey, PathUsage> = BTreeMap::new();
    for (key, usage) in entries {
        sums.entry(*key).or_default().add(usage);
    }
    sums
}

proptest! {
    #[test]
    fn totals_are_exact_in_any_order(entries in entries()) {
        let totals = PathTotals::new(entries.clone());
        let expected = sums(&entries);
        prop_assert_eq!(totals.len(), expected.len());
        prop_assert!(totals.iter().eq(expected));
    }

    #[test]
    fn merged_totals_are_the_sums(one in entries(), other in entries()) {
        let merged = PathTotals::new(one.clone()).merge(PathTotals::new(other.clone()));
        prop_assert!(merged.iter().eq(sums(one.iter().chain(&other))));
    }
}

#[test]
fn stack_of_freed_blocks_takes_few_bytes() {
    let amount = Amount { bytes: Bytes(6400), count: 100 };
    let usage = Quantities::ZERO.with_amount(Quantity::AllocBytes, amount).with_free(amount);
    let entry = |path: u32| {
        let key = PathKey { path: Node::from_number(path * 30), end: StackEnd::Complete, part: Part::WHOLE };
        (key, PathUsage { usage, ..PathUsage::default() })
    };
    let totals = PathTotals::new((1..=1000).map(entry).collect());
    assert_eq!(totals.chunks.iter().map(|chunk| chunk.len()).sum::<usize>(), 6 * 1000);
}

#[test]
fn an_estimate_takes_the_room_of_four_stacks() {
    // 40 of 100 samples of blocks of 1 KiB are held. At an interval of 512 KiB, each stands for 512.5 blocks.
    let of = |samples| SampleSum::of_poisson(samples, Bytes(1 << 10), Bytes(512 << 10), 7);
    let (held, all) = (of(40), of(100));
    let usage = Quantities::of_blocks([held.amount, all.amount, Amount::default()]);
    let usage = PathUsage { usage: usage.with_spreads(held.spread, all.spread), ..PathUsage::default() };
    let exact = Quantities::ZERO.with_amount(Quantity::AllocBytes, all.amount);
    let exact = PathUsage { usage: exact, ..PathUsage::default() };
    let totals = |paths: std::ops::RangeInclusive<u32>, usage: &PathUsage| {
        let key = |path| PathKey { path: Node::from_number(path), end: StackEnd::Complete, part: Part::WHOLE };
        PathTotals::new(paths.map(|path| (key(path), usage.clone())).collect())
    };
    let sampled = totals(1..=100, &usage);
    let bytes = sampled.bytes() / 100;
    assert!((32..=64).contains(&bytes), "{bytes}");
    assert_eq!((sampled.len(), sampled.size()), (100, 400));
    assert_eq!(totals(1..=100, &exact).size(), 100);
    // 50 stacks have both kinds of blocks, and 50 have exact blocks only.
    let merged = sampled.merge(totals(51..=150, &exact));
    assert_eq!((merged.len(), merged.size()), (150, 450));
    let mut parts = TotalParts::default();
    parts.push(merged);
    assert_eq!(parts.size(), 450);
}

#[test]
fn long_lists_are_in_several_chunks() {
    let entry = |path: u32| {
        let key = PathKey { path: Node::from_number(path), end: StackEnd::Complete, part: Part::WHOLE };
        let value = u64::MAX >> (path % 64);
        let usage = Quantity::ALL.into_iter().fold(Quantities::ZERO, |usage, quantity| usage.with(quantity, value));
        (key, PathUsage { usage, ..PathUsage::default() })
    };
    let entries: Vec<_> = (1..=1000).map(entry).collect();
    let totals = PathTotals::new(entries.clone());
    assert!(totals.chunks.len() > 2);
    assert!(totals.iter().eq(entries.iter().cloned()));
    assert!(totals.into_iter().eq(entries));
}
