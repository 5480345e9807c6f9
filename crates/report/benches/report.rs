//! Time to write each report format for large profiles: 20,000 stacks of 30 frames, and a million stacks of 40
//! frames.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memtrace_model::{
    Amount, BlockHistograms, Bytes, Frame, FrameId, GroupBy, LiveChanges, Location, Metric, Name, ObjectName, Part,
    Pid, ProcessProfile, Profile, Quantities, Quantity, RunFacts, StackEnd, StackProfile, VirtOffset,
};
use memtrace_report::{Format, Options, write};

const FRAMES: usize = 5_000;

/// Returns a profile with stacks that share their root frames and diverge towards their leaves, as in a service.
fn profile(stacks: usize, depth: usize) -> Profile {
    let object = ObjectName { path: PathBuf::from("/usr/bin/service"), build_id: None };
    let frames = (0..FRAMES).map(|index| Frame {
        name: Ok(Name(format!("service::module_{}::function_{index}<T>::call", index % 100))),
        object: Some(object.clone()),
        offset: Some(VirtOffset(index as u64 * 64)),
        address: None,
        location: Some(Location { file: PathBuf::from(format!("src/module_{}.rs", index % 100)), line: Some(1) }),
        inlined: index % 10 == 0,
        by_frame_pointer: false,
    });
    let mut random = 1_u64;
    let stacks = (0..stacks).map(|index| {
        let frames = (0..depth).map(|depth| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let choices = 1_u64 << (depth / 3).min(9);
            FrameId::new((depth * 500 + (random >> 33) as usize % choices as usize) % FRAMES)
        });
        let amount = Amount { bytes: Bytes(index as u64 * 16 + 1), count: index as u64 + 1 };
        StackProfile {
            process: 0,
            part: Part::WHOLE,
            frames: frames.collect(),
            end: StackEnd::Complete,
            label: None,
            usage: Quantities::ZERO
                .with_amount(Quantity::LiveBytes, amount)
                .with_amount(Quantity::AllocBytes, amount)
                .with_free(Amount::default()),
            histograms: BlockHistograms::default(),
            live_changes: LiveChanges::default(),
        }
    });
    let stacks: Vec<_> = stacks.collect();
    let total = stacks.iter().fold(Quantities::default(), |mut sum, stack| {
        sum += stack.usage;
        sum
    });
    let process = ProcessProfile { total, ..ProcessProfile::new(Pid(4711), "service") };
    Profile {
        run: RunFacts { duration: Duration::from_secs(30), ..RunFacts::default() },
        processes: vec![process],
        stacks,
        frames: frames.collect(),
        ..Profile::default()
    }
}

fn writers(criterion: &mut Criterion) {
    formats(criterion, "report", &profile(20_000, 30));
    formats(criterion, "report of a million stacks", &profile(1_000_000, 40));
}

fn formats(criterion: &mut Criterion, name: &str, profile: &Profile) {
    let options = Options {
        metric: Metric::LiveBytes,
        by: GroupBy::Process,
        top: 10,
        all_stacks: false,
        subject: String::from("pid 4711 (service)"),
    };
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(profile.stacks.len() as u64)).sample_size(10);
    for &format in Format::OF_STACKS {
        group.bench_function(format.name(), |bencher| {
            bencher.iter(|| {
                let mut bytes = Vec::new();
                write(format, black_box(profile), &options, &mut bytes).map(|()| bytes)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, writers);
criterion_main!(benches);
