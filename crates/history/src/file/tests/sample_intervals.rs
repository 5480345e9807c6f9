//! Intervals for tests.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use memtrace_model::{
    AllocatorId, Amount, BuildId, Bytes, Cgroup, CgroupId, Comm, EventClass, Frame, ImageEnd, ImageId, ImageStart,
    Location as SourceLocation, LossReason, Losses, MappingKind, Name, Nanoseconds, OomKill, Order, Part, Pid,
    Quantities, Quantity, ReclaimKind, StackEnd, Stall, StallKey, StallStats, StallTotals, Tick, Tid, Unnamed, User,
    VirtOffset,
};
use proptest::prelude::*;

use crate::*;

/// The header of all tests.
pub(super) fn header() -> Header {
    Header {
        version: String::from("0.1.0"),
        host: String::from("host"),
        kernel: String::from("6.12.1"),
        arguments: ["memtrace", "record", "-a"].map(String::from).into(),
        start: SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789),
        interval: Duration::from_secs(1),
        classes: vec![EventClass::Heap, EventClass::Reclaim],
        page_sample: 64,
        older: None,
    }
}

/// Returns the ID of the test image with this pid.
pub(super) const fn image(pid: u32) -> ImageId {
    ImageId { pid: Pid(pid), ordinal: pid / 3 }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), (-1_i64 << 40..1 << 40).prop_map(i64::cast_unsigned)]
}

fn amount() -> impl Strategy<Value = Amount> {
    (number(), number()).prop_map(|(bytes, count)| Amount { bytes: Bytes(bytes), count })
}

fn key() -> impl Strategy<Value = TotalKey> {
    let parts = [
        Part::WHOLE,
        Part::WHOLE.with_thread(Tid(9)),
        Part::WHOLE.with_allocator(AllocatorId(2)),
        Part::WHOLE.with_memory(MappingKind::Shmem),
    ];
    let ends = prop::sample::select(vec![StackEnd::Complete, StackEnd::NoRow, StackEnd::Merged]);
    (1_u32..4, prop::sample::select(EventClass::ALL), 0_u32..4, ends, prop::sample::select(parts.to_vec())).prop_map(
        |(pid, class, path, end, part)| TotalKey { image: image(pid), class, path: PathNumber(path), end, part },
    )
}

fn usage() -> impl Strategy<Value = Quantities> {
    let rest = (number(), number(), number(), number(), number(), number(), number());
    let amounts = (amount(), amount(), amount(), amount(), amount());
    (amounts, rest).prop_map(|((live, exit, alloc, free, temporary), rest)| {
        Quantities::ZERO
            .with_amount(Quantity::LiveBytes, live)
            .with_amount(Quantity::ExitBytes, exit)
            .with_amount(Quantity::AllocBytes, alloc)
            .with_amount(Quantity::TemporaryBytes, temporary)
            .with_stalls(StallTotals { count: rest.0, time: Nanoseconds(rest.1) })
            .with_amount(Quantity::DiscardedBytes, free)
            .with(Quantity::AtPeakBytes, rest.2)
            .with(Quantity::ResidentBytes, rest.6)
            .with(Quantity::MajorFaults, rest.3)
            .with(Quantity::LiveVariance, rest.4)
            .with(Quantity::AllocVariance, rest.5)
            .with(Quantity::HeldSamples, rest.0)
            .with(Quantity::AllocSamples, rest.3)
            .with(Quantity::HeldBytesVariance, rest.1)
            .with(Quantity::HeldBytesVarianceHigh, rest.4)
            .with(Quantity::AllocCountVarianceHigh, rest.5)
    })
}

fn stalls() -> impl Strategy<Value = StallChange> {
    let stall = (0_u64..1 << 40, prop::option::of(0_u32..8)).prop_map(|(duration, order)| Stall {
        work: ReclaimKind::Direct,
        order: order.and_then(Order::of),
        group: None,
        stack: memtrace_model::StackId(7),
        duration: Nanoseconds(duration),
        throttled: Nanoseconds(duration / 3),
        scanned: 32,
        reclaimed: 30,
    });
    let kinds = prop::sample::select(ReclaimKind::ALL);
    (1_u32..4, kinds, 0_u64..3, prop::collection::vec(stall, 1..4)).prop_map(|(pid, work, group, all)| {
        let mut stats = StallStats::default();
        all.iter().for_each(|stall| stats.add(stall));
        StallChange { image: image(pid), key: StallKey { group: CgroupId::of(group), work }, stats }
    })
}

fn changes() -> impl Strategy<Value = Interval> {
    let details = prop::sample::select(vec![DetailKind::EpochLiveBytes, DetailKind::Lifetime, DetailKind::Size]);
    let details = (key(), details, 0_u32..5, number());
    let values = prop::sample::select(vec![
        ImageValue::Peak,
        ImageValue::UnmatchedFrees,
        ImageValue::UnmatchedSamples,
        ImageValue::ResidentBefore,
    ]);
    let values = (1_u32..4, prop::sample::select(EventClass::ALL), values, 0_u32..3, number());
    let losses = prop::collection::vec((prop::sample::select(LossReason::ALL), 0_u64..1000), 0..3);
    (
        prop::collection::btree_map(key(), (usage(), number()), 0..12),
        prop::collection::vec(details, 0..8),
        prop::collection::vec(values, 0..8),
        prop::collection::vec(stalls(), 0..3),
        losses,
    )
        .prop_map(|(changes, details, values, stalls, lost)| {
            let mut losses = Losses::default();
            lost.into_iter().for_each(|(reason, count)| losses.add(reason, count));
            let detail = |(key, kind, index, value)| Detail { key, kind, index, value };
            let value = |(pid, class, kind, index, value)| ImageChange { image: image(pid), class, kind, index, value };
            Interval {
                changes: changes
                    .into_iter()
                    .map(|(key, (usage, merged))| Change { key, usage: usage.with(Quantity::MergedStacks, merged) })
                    .collect(),
                details: details.into_iter().map(detail).collect(),
                image_changes: values.into_iter().map(value).collect(),
                stalls,
                losses,
                ..Interval::default()
            }
        })
}

/// Consecutive intervals with random changes.
pub(super) fn intervals(number: Range<usize>) -> impl Strategy<Value = Vec<Interval>> {
    prop::collection::vec(changes(), number).prop_map(|mut intervals| {
        for (second, interval) in (0..).zip(&mut intervals) {
            interval.span = Duration::from_secs(second)..Duration::from_secs(second + 1);
        }
        intervals
    })
}

/// A change: a stack of a process allocates `blocks` blocks of 16 bytes.
pub(super) fn allocated(pid: u32, path: u32, blocks: u64) -> Change {
    let live = Amount { bytes: Bytes(16 * blocks), count: blocks };
    let key = TotalKey {
        image: image(pid),
        class: EventClass::Heap,
        path: PathNumber(path),
        end: StackEnd::Complete,
        part: Part::WHOLE,
    };
    let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, live).with_amount(Quantity::AllocBytes, live);
    Change { key, usage }
}

/// A process with all facts.
pub(super) fn process(pid: u32, ended: Option<(ImageEnd, Tick)>) -> RecordedImage {
    let cgroup = Cgroup { path: format!("/{pid}.service"), unit: Some(format!("{pid}.service")), ..Cgroup::default() };
    RecordedImage {
        id: image(pid),
        comm: Comm::from(format!("process{pid}")),
        exe: Some(PathBuf::from("/usr/bin/service")),
        user: Some(User { uid: 1000, name: Some(String::from("user")) }),
        cgroup: Some(Arc::new(cgroup)),
        threads: Some(3),
        thread_names: [(Tid(pid + 1), String::from("worker"))].into(),
        start: ImageStart::Exec(Tick(7)),
        ended,
        member_of: None,
    }
}

/// An interval of one second with every kind of row. It depends only on `second`.
pub(super) fn second(second: u64) -> Interval {
    let number = second as u32 + 1;
    let end = Duration::from_secs(second + 1);
    let frame = Frame {
        object: Some(memtrace_model::ObjectName {
            path: PathBuf::from("/usr/lib/libservice.so"),
            build_id: Some(BuildId([0xab, 0xcd].into())),
        }),
        offset: Some(VirtOffset(0x1000 + second)),
        location: Some(SourceLocation { file: PathBuf::from("service.c"), line: Some(number) }),
        ..Frame::new(Ok(Name(format!("function{second}"))))
    };
    let location =
        Location::File { path: PathBuf::from("/usr/lib/libservice.so"), build_id: Some(BuildId([0xab, 0xcd].into())) };
    let objects = [(1, location), (2, Location::Generated), (3, Location::Outside(Unnamed::NoMapping))];
    let objects = objects.map(|(number, location)| RecordedObject { number: ObjectNumber(number), location });
    let path = |number, callers| RecordedPath {
        number: PathNumber(number),
        callers: PathNumber(callers),
        object: ObjectNumber(1 + number % 3),
        offset: (number % 5 > 0).then(|| 0x1000 + u64::from(number)),
        by_frame_pointer: number % 2 == 1,
    };
    let mut losses = Losses::default();
    losses.add(LossReason::ALL[0], second);
    let sample = |subject, counter: &'static str, value| Sample { subject, counter: counter.into(), value };
    let fact = |topic: &'static str, item: String, value| Fact { topic: topic.into(), item: item.into(), value };
    Interval {
        span: Duration::from_secs(second)..end,
        objects: if second == 0 { objects.into() } else { Vec::new() },
        paths: vec![path(2 * number, 2 * number - 2), path(2 * number + 1, 2 * number)],
        symbols: vec![RecordedSymbols {
            object: ObjectNumber(1),
            offset: Some(second),
            frames: [frame].into(),
            is_library: false,
        }],
        images: vec![process(number, (second % 2 == 1).then(|| (ImageEnd::Exit, Tick::at(end))))],
        oom_kills: vec![OomKill {
            at: Tick::at(end),
            victim: image(number),
            comm: String::from("victim"),
            by: Pid(1),
            by_comm: String::from("by"),
            group: CgroupId::of(second),
            full: None,
        }],
        changes: (1..=number).map(|pid| allocated(pid, 2 * pid, second + 1)).collect(),
        losses,
        samples: vec![
            sample(Subject::Machine, "meminfo.MemAvailable_bytes", second),
            sample(Subject::Process(image(number)), "rss_anon_bytes", 4096 * second),
            sample(Subject::Process(image(1)), "rss_anon_bytes", 4096 * second),
        ],
        facts: vec![
            fact("note", String::from("first"), FactValue::Text(format!("text {second}"))),
            fact("allocator", number.to_string(), FactValue::Number(second)),
        ],
        marks: if second % 3 == 2 {
            vec![Mark { at: end, text: format!("mark {second}"), epoch: number / 3 }]
        } else {
            Vec::new()
        },
        ..Interval::default()
    }
}
