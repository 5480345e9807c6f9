//! A hand-written profile with one example of everything that a report can show.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, Amount, BlockHistograms, BuildId, Bytes, Cgroup, Container, Cost, EventClass, Frame, FrameId, ImageEnd,
    LiveChanges, Location, LossReason, Losses, Name, ObjectName, Part, Pid, ProcessProfile, Profile, ProgramCost,
    Quantities, Quantity, RunFacts, StackEnd, StackProfile, TouchWindow, Unnamed, Untraced, User, VirtOffset,
    WorkingSetMethod,
};

/// Returns a profile of three images of two processes, with names that try to break every format,
/// and with two kinds of losses.
pub(crate) fn sample() -> Profile {
    let mut losses = Losses::default();
    losses.add(LossReason::RingFullFree, 1234);
    losses.add(LossReason::PendingStale, 1);
    Profile {
        run: RunFacts {
            class: EventClass::Heap,
            page_sample: 1,
            duration: Duration::from_millis(30_250),
            window: None,
            parts: Vec::new(),
            timeline: None,
            activity: None,
            killed_cgroups: BTreeMap::new(),
            reclaim: None,
            filtered: Amount { bytes: Bytes(4096), count: 17 },
            tags: BTreeMap::new(),
            allocators: BTreeMap::new(),
            older: None,
            touches: None,
            untraced: Untraced::default(),
            notes: vec![String::from(
                "process 4711 also has the allocator /usr/lib/libother.so, which memtrace does not trace",
            )],
            debug_files: None,
            cost: Some(Cost {
                events: 1_234_567,
                nested: 89,
                cpu: Duration::from_millis(2_150),
                cpu_tracing: Duration::from_millis(480),
                peak_rss: Bytes(18 << 20),
                programs: Some(ProgramCost { hits: 1_900_000, time: Duration::from_millis(779) }),
            }),
            ..RunFacts::default()
        },
        earlier: Vec::new(),
        processes: processes(),
        stacks: stacks(),
        frames: frames(),
        labels: Vec::new(),
        losses,
        oom_kills: Vec::new(),
        cgroups: Vec::new(),
    }
}

/// Returns the sample with touches: a quarter of the live bytes is hot, and half of them cold.
pub(crate) fn with_touches() -> Profile {
    let mut profile = sample();
    let duration = Duration::from_millis(10_050);
    profile.run.touches = Some(TouchWindow { method: WorkingSetMethod::Idle, duration });
    let set = |usage: &mut Quantities| {
        let live = usage[Quantity::LiveBytes];
        *usage = usage.with(Quantity::HotBytes, live / 4).with(Quantity::ColdBytes, live / 2);
    };
    profile.stacks.iter_mut().for_each(|stack| set(&mut stack.usage));
    profile.processes.iter_mut().for_each(|process| set(&mut process.total));
    profile
}

fn processes() -> Vec<ProcessProfile> {
    let shell = ProcessProfile {
        exe: Some(PathBuf::from("/bin/dash")),
        ended: Some(ImageEnd::Exec),
        total: usage((0, 0), (300, 3), (100, 1)),
        unmatched_frees: 5,
        peak: Some(Bytes(300)),
        user: Some(User { uid: 0, name: Some(String::from("root")) }),
        traced: Duration::from_millis(250),
        ..ProcessProfile::new(Pid(4711), "sh")
    };
    let server = ProcessProfile {
        exe: Some(PathBuf::from(OsStr::from_bytes(b"/opt/caf\xe9/redis-server"))),
        total: usage((1_835_008, 1642), (2_883_584, 1659), (1_048_576, 17)),
        unmatched_frees: 1000,
        peak: Some(Bytes(1_900_000)),
        user: Some(User { uid: 107, name: Some(String::from("redis")) }),
        cgroup: Some(Arc::new(Cgroup {
            path: String::from("/system.slice/redis-server.service"),
            unit: Some(String::from("redis-server.service")),
            ..Cgroup::default()
        })),
        threads: Some(5),
        traced: Duration::from_secs(30),
        ..ProcessProfile::new(Pid(4711), "redis-server")
    };
    let hostile = ProcessProfile {
        total: usage((442_368, 8), (458_752, 9), (16_384, 1)),
        inherited_frees: 3,
        repeated_frees: 7,
        user: Some(User { uid: 4_000_000_000, name: None }),
        cgroup: Some(Arc::new(Cgroup {
            path: format!("/kubepods/pod2f3c9a1b-7d4e-4c55-9b8a-0123456789ab/{}\u{1b};", "3f4b8e1c9d7a6520".repeat(4)),
            unit: None,
            container: Some(Container { runtime: Some("containerd"), id: "3f4b8e1c9d7a6520".repeat(4) }),
            pod: Some(String::from("2f3c9a1b-7d4e-4c55-9b8a-0123456789ab")),
        })),
        ..ProcessProfile::new(Pid(4712), "# w;o<r>\nk\u{1b}[31m")
    };
    vec![shell, server, hostile]
}

fn stacks() -> Vec<StackProfile> {
    let stack = |process, frames: &[usize], end, usage, at_peak: Option<u64>| StackProfile {
        process,
        part: Part::WHOLE,
        frames: frames.iter().copied().map(FrameId::new).collect(),
        end,
        label: None,
        usage: Quantities::with(usage, Quantity::AtPeakBytes, at_peak.unwrap_or_default()),
        histograms: BlockHistograms::default(),
        live_changes: LiveChanges::default(),
    };
    let long: Vec<_> = (0..40).map(|index| if index % 2 == 0 { MAIN } else { HANDLE }).collect();
    vec![
        stack(0, &[MAIN], StackEnd::Complete, usage((0, 0), (300, 3), (100, 1)), Some(300)),
        stack(1, &[], StackEnd::NotTaken, usage((65_536, 1), (65_536, 1), (0, 0)), Some(65_536)),
        // Freed blocks are in no picture of live memory.
        stack(1, &[START, MAIN], StackEnd::Complete, usage((0, 0), (1_048_576, 16), (1_048_576, 16)), Some(92_928)),
        stack(
            1,
            &[START, MAIN, HANDLE, INLINED, INSERT],
            StackEnd::Complete,
            usage((1_310_720, 1600), (1_310_720, 1600), (0, 0)),
            Some(1_310_000),
        ),
        stack(
            1,
            &[START, MAIN, HANDLE_COLD],
            StackEnd::Complete,
            usage((131_072, 8), (131_072, 8), (0, 0)),
            Some(131_072),
        ),
        stack(
            1,
            &[START, MAIN, HANDLE, NO_SYMBOL],
            StackEnd::Complete,
            usage((196_608, 3), (196_608, 4), (0, 1)),
            Some(196_608),
        ),
        stack(1, &long, StackEnd::Truncated, usage((131_072, 30), (131_072, 30), (0, 0)), Some(0)),
        stack(2, &[], StackEnd::Failed, usage((16_384, 1), (16_384, 1), (0, 0)), None),
        stack(2, &[], StackEnd::FramesLost, usage((32_768, 1), (32_768, 1), (0, 0)), None),
        stack(2, &[HOSTILE, NUMBERED], StackEnd::GeneratedCut, usage((49_152, 2), (65_536, 3), (16_384, 1)), None),
        stack(2, &[HOSTILE, EMPTY], StackEnd::GeneratedCut, usage((16_384, 1), (16_384, 1), (0, 0)), None),
        stack(2, &[GENERATED, NO_MAPPING], StackEnd::GeneratedCut, usage((65_536, 1), (65_536, 1), (0, 0)), None),
        stack(2, &[UNREADABLE, TEMPLATE], StackEnd::GeneratedCut, usage((262_144, 2), (262_144, 2), (0, 0)), None),
    ]
}

const START: usize = 0;
const MAIN: usize = 1;
const HANDLE: usize = 2;
const HANDLE_COLD: usize = 3;
const INLINED: usize = 4;
const INSERT: usize = 5;
const NO_SYMBOL: usize = 6;
const HOSTILE: usize = 7;
const NUMBERED: usize = 8;
const EMPTY: usize = 9;
const GENERATED: usize = 10;
const NO_MAPPING: usize = 11;
const UNREADABLE: usize = 12;
const TEMPLATE: usize = 13;

fn frames() -> Vec<Frame> {
    let libc = object(b"/usr/lib/x86_64-linux-gnu/libc.so.6", Some(&[0xde, 0xad, 0xbe, 0xef]));
    let server = object(b"/opt/caf\xe9/redis-server", None);
    let named = |name: &str, object: &ObjectName, offset, location: Option<(&str, Option<u32>)>| Frame {
        name: Ok(Name(String::from(name))),
        object: Some(object.clone()),
        offset: Some(VirtOffset(offset)),
        address: None,
        location: location.map(|(file, line)| Location { file: PathBuf::from(file), line }),
        inlined: false,
        by_frame_pointer: false,
    };
    let unnamed = |reason, object: Option<&ObjectName>, offset: Option<u64>, address: Option<u64>| Frame {
        name: Err(reason),
        object: object.cloned(),
        offset: offset.map(VirtOffset),
        address: address.map(AbsAddr),
        location: None,
        inlined: false,
        by_frame_pointer: false,
    };
    let template = format!("std::map<{}>::insert", "std::pair<unsigned long, std::string>, ".repeat(4));
    vec![
        named("__libc_start_main", &libc, 0x27_249, None),
        named("main", &server, 0x1100, Some(("src/server.c", Some(118)))),
        named("handle", &server, 0x1200, Some(("src/handle.c", Some(42)))),
        named("handle.cold", &server, 0x1250, Some(("src/handle.c", None))),
        Frame { inlined: true, ..named("hash_bytes", &server, 0x1300, Some(("/usr/include/hash.h", Some(7)))) },
        named(
            "cache_insert",
            &server,
            0x1400,
            Some(("/build/redis-7.0.15/debian/build/deps/../../src/storage/cache/insert.c", Some(2001))),
        ),
        unnamed(Unnamed::NoSymbol, Some(&libc), Some(0x9_1234), None),
        named("evil;\"<b>&amp;\r\n]]>--\0\u{202e}", &server, 0x1500, Some(("a;\n\u{1b}[2J.c", Some(1)))),
        named("operator 42", &server, 0x1600, None),
        named(" ", &server, 0x1700, None),
        unnamed(Unnamed::Anonymous, None, None, Some(0x7f00_dead_b000)),
        unnamed(Unnamed::NoMapping, None, None, Some(0x10)),
        unnamed(Unnamed::ObjectUnreadable, Some(&object(b"/gone/libold.so", Some(&[7]))), Some(0x20), None),
        named(&template, &server, 0x1800, None),
    ]
}

fn object(path: &[u8], build_id: Option<&[u8]>) -> ObjectName {
    ObjectName { path: PathBuf::from(OsStr::from_bytes(path)), build_id: build_id.map(|id| BuildId(id.into())) }
}

fn usage(live: (u64, u64), alloc: (u64, u64), free: (u64, u64)) -> Quantities {
    let amount = |(bytes, count)| Amount { bytes: Bytes(bytes), count };
    let (live, alloc, free) = (amount(live), amount(alloc), amount(free));
    Quantities::ZERO
        .with_amount(Quantity::LiveBytes, live)
        .with_amount(Quantity::AllocBytes, alloc)
        .with_amount(Quantity::DiscardedBytes, alloc - live - free)
}
