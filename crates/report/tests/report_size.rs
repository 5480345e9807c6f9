//! Large profiles give small reports, written without a copy of the document in memory.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    Amount, BlockHistograms, BlockQuantity, Bytes, Frame, FrameId, GroupBy, ImageEnd, LiveChanges, Location, Log2,
    Metric, Name, ObjectName, Part, PartChange, Pid, ProcessProfile, Profile, Quantities, Quantity, RunFacts, StackEnd,
    StackProfile, VirtOffset,
};
use memtrace_report::{Format, Options, write};

const STACKS: usize = 300_000;
const DEPTH: usize = 40;
const FRAMES: usize = 200_000;
const PROCESSES: usize = 10_000;

/// Numbers of bytes that were written: by all calls, and by the largest call.
#[derive(Default)]
struct Written {
    all: usize,
    largest: usize,
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.all += bytes.len();
        self.largest = self.largest.max(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns stacks of 40 frames with long names in 10,000 processes. Most processes have ended.
fn profile() -> Profile {
    let object = ObjectName { path: PathBuf::from("/usr/lib/x86_64-linux-gnu/libservice.so.1.2.3"), build_id: None };
    let frame = |index: usize| Frame {
        name: Ok(Name(format!("std::map<int, service::module_{}>::function_{index}(int const&)", index % 100))),
        object: Some(object.clone()),
        offset: Some(VirtOffset(index as u64 * 64)),
        address: None,
        location: Some(Location { file: PathBuf::from(format!("src/module_{}.cc", index % 100)), line: Some(1) }),
        inlined: index.is_multiple_of(10),
        by_frame_pointer: false,
    };
    let process = |index: usize| ProcessProfile {
        ended: (!index.is_multiple_of(10)).then_some(ImageEnd::Exit),
        exe: Some(PathBuf::from("/usr/libexec/service/worker")),
        ..ProcessProfile::new(Pid(index as u32 + 1), "worker")
    };
    let mut profile = Profile {
        run: RunFacts { duration: Duration::from_secs(3600), ..RunFacts::default() },
        processes: (0..PROCESSES).map(process).collect(),
        frames: (0..FRAMES).map(frame).collect(),
        ..Profile::default()
    };
    let mut random = 1_u64;
    for index in 0..STACKS {
        let process = index * PROCESSES / STACKS;
        // Callers are shared, and leaves differ.
        let frames: Arc<[_]> = (0..DEPTH)
            .map(|depth| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let choices = 1_usize << (depth / 2).min(17);
                FrameId::new((depth * 1000 + (random >> 33) as usize % choices) % FRAMES)
            })
            .collect();
        let amount = Amount { bytes: Bytes((random >> 40) + 1), count: (random >> 50) + 1 };
        let (live, exit) = match profile.processes[process].ended {
            Some(_) => (Amount::default(), amount),
            None => (amount, Amount::default()),
        };
        let stack = StackProfile {
            process,
            part: Part::WHOLE,
            frames,
            end: StackEnd::Complete,
            label: None,
            usage: Quantities::ZERO
                .with_amount(Quantity::LiveBytes, live)
                .with_amount(Quantity::ExitBytes, exit)
                .with_amount(Quantity::AllocBytes, amount),
            histograms: BlockHistograms::default(),
            live_changes: LiveChanges::default(),
        };
        profile.processes[process].total += stack.usage;
        profile.stacks.push(stack);
    }
    profile
}

fn options() -> Options {
    Options {
        metric: Metric::AllocBytes,
        by: GroupBy::Process,
        top: 10,
        all_stacks: false,
        subject: String::from("the whole machine"),
    }
}

fn written(format: Format, profile: &Profile) -> Written {
    let mut written = Written::default();
    write(format, profile, &options(), &mut written).expect("everything is taken");
    written
}

#[test]
fn reports_of_many_stacks_are_small() {
    let profile = profile();
    for (format, most) in [(Format::Json, 40 << 20), (Format::Folded, 40 << 20), (Format::Svg, 5 << 20)] {
        let written = written(format, &profile);
        assert!(written.all <= most, "{}: {} bytes", format.name(), written.all);
        assert!(written.largest <= 64 << 10, "{}: a piece of {} bytes", format.name(), written.largest);
        // A report that is much smaller leaves out more than it has to.
        assert!(format != Format::Json || written.all * 2 >= most, "{} bytes", written.all);
    }
}

#[test]
fn histograms_count_towards_the_size() {
    let mut profile = profile();
    profile.stacks.truncate(STACKS / 5);
    let second = Duration::from_secs(225);
    profile.run.parts = (0..16).map(|part| second * part..second * (part + 1)).collect();
    for (index, stack) in profile.stacks.iter_mut().enumerate() {
        let buckets = BlockQuantity::ALL.into_iter().flat_map(|quantity| {
            let logarithms = (0..64).filter_map(Log2::from_number);
            logarithms.map(move |log2| (quantity, log2, 1 + (index as u64 % 7) * 1_000_003))
        });
        stack.histograms = buckets.collect();
        let live = i64::MIN / 600_000;
        (0..16).for_each(|part| stack.live_changes.add(part, 16, PartChange { live, alloc: u64::MAX / 600_000 }));
    }
    let written = written(Format::Json, &profile);
    assert!(written.all <= 40 << 20, "{} bytes", written.all);
}

#[test]
fn picture_with_many_wide_boxes_is_small() {
    let mut profile = profile();
    profile.stacks.truncate(5000);
    for (index, stack) in profile.stacks.iter_mut().enumerate() {
        stack.frames = (0..DEPTH).map(|depth| FrameId::new(index * DEPTH + depth)).collect();
        let alloc = Amount { bytes: Bytes(1000 + index as u64), count: 1 };
        stack.usage = stack.usage.with_amount(Quantity::AllocBytes, alloc);
    }
    let written = written(Format::Svg, &profile);
    assert!((2 << 20..=5 << 20).contains(&written.all), "{} bytes", written.all);
}
