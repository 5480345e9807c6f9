//! A hand-written profile of stalls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    BlockHistograms, Bytes, Cgroup, CgroupId, EventClass, Frame, FrameId, ImageEnd, ImageId, KernelThread, LiveChanges,
    MachineReclaim, MemcgMemory, MemcgProfile, Name, Nanoseconds, OomKill, Order, Part, PerSecond, Pid, PressureTime,
    ProcessProfile, Profile, Quantities, ReclaimActivity, ReclaimKind, RunFacts, StackEnd, StackId, StackProfile,
    Stall, StallStats, StallTotals, Tick, VmCounters,
};

const EATER: Pid = Pid(4711);
const READER: Pid = Pid(4712);

/// Returns a profile of two processes: one reads more than the limit of its control group, and one is OOM-killed.
pub(crate) fn waits() -> Profile {
    let stalls = [
        BTreeMap::from([(ReclaimKind::Memcg, stats_of(ReclaimKind::Memcg, &[700, 9_000, 12_000, 12_000, 4_000_000]))]),
        BTreeMap::from([
            (ReclaimKind::Direct, stats_of(ReclaimKind::Direct, &[1_500_000_000])),
            (ReclaimKind::Compaction, stats_of(ReclaimKind::Compaction, &[250_000, 90_000])),
        ]),
    ];
    let [eater, reader] = stalls.map(|stalls| {
        let total = stalls.values().fold(StallTotals::default(), |mut sum, stats| {
            sum += stats.stalls;
            sum
        });
        (stalls, Quantities::ZERO.with_stalls(total))
    });
    let cgroup = |path: &str| Some(Arc::new(Cgroup { path: path.to_owned(), ..Cgroup::default() }));
    let processes = vec![
        ProcessProfile {
            stalls: eater.0,
            total: eater.1,
            ended: Some(ImageEnd::OomKill),
            cgroup: cgroup("/jobs/small"),
            ..ProcessProfile::new(EATER, "eater")
        },
        ProcessProfile {
            stalls: reader.0,
            total: reader.1,
            cgroup: cgroup("/jobs/large"),
            ..ProcessProfile::new(READER, "reader")
        },
    ];
    let stacks = processes.iter().enumerate().map(|(process, of)| StackProfile {
        process,
        part: Part::WHOLE,
        frames: [FrameId::new(0), FrameId::new(process + 1)].into(),
        end: StackEnd::Complete,
        label: None,
        usage: of.total,
        histograms: BlockHistograms::default(),
        live_changes: LiveChanges::default(),
    });
    Profile {
        run: RunFacts {
            class: EventClass::Reclaim,
            duration: Duration::from_secs(12),
            killed_cgroups: [(6, "/jobs"), (7, "/jobs/small")]
                .into_iter()
                .filter_map(|(id, path)| Some((CgroupId::of(id)?, path.to_owned())))
                .collect(),
            reclaim: Some(machine()),
            ..RunFacts::default()
        },
        cgroups: cgroups(&processes),
        stacks: stacks.collect(),
        processes,
        frames: ["main", "eat", "read_all"].map(frame).into(),
        oom_kills: vec![
            OomKill { group: CgroupId::of(7), full: CgroupId::of(6), ..kill(EATER, "eater", EATER, "eater") },
            OomKill { full: CgroupId::of(9), ..kill(Pid(9), "", READER, "reader") },
        ],
        ..Profile::default()
    }
}

/// Returns a group at its limit, one without a limit, one that was removed, and stalls without a
/// group.
fn cgroups(processes: &[ProcessProfile]) -> Vec<MemcgProfile> {
    let [eater, reader] = [0, 1].map(|nth| processes[nth].stalls.clone());
    let (direct, compaction) = (reader[&ReclaimKind::Direct], reader[&ReclaimKind::Compaction]);
    let group = |id, path: Option<&str>, stalls| MemcgProfile {
        id: CgroupId::of(id),
        path: path.map(str::to_owned),
        stalls,
        memory: None,
    };
    let small = MemcgMemory {
        version_2: true,
        limit: Some(Bytes(64 << 20)),
        high: Some(Bytes(60 << 20)),
        current: Some(Bytes(59 << 20)),
        watched: Duration::from_secs(12),
        refaults: Some(12_000),
        pressure: Some(PressureTime { some: Duration::from_millis(300), full: None }),
        seconds: PerSecond { all: 12, scanning: 9, paging: 8 },
    };
    let large = MemcgMemory {
        version_2: true,
        current: Some(Bytes(7 << 30)),
        watched: Duration::from_secs(3),
        seconds: PerSecond { all: 3, ..PerSecond::default() },
        ..MemcgMemory::default()
    };
    vec![
        group(0, None, BTreeMap::from([(ReclaimKind::Compaction, compaction)])),
        MemcgProfile { memory: Some(small), ..group(7, Some("/jobs/small"), eater) },
        MemcgProfile {
            memory: Some(large),
            ..group(8, Some("/jobs/large"), BTreeMap::from([(ReclaimKind::Direct, direct)]))
        },
        group(9, None, BTreeMap::from([(ReclaimKind::Memcg, stats_of(ReclaimKind::Memcg, &[1000]))])),
    ]
}

/// Returns the stalls with these durations. Work for a control group is for single pages, and other
/// work mostly for contiguous pages.
fn stats_of(work: ReclaimKind, durations: &[u64]) -> StallStats {
    let mut stats = StallStats::default();
    for (nth, &duration) in durations.iter().enumerate() {
        let order = match work {
            ReclaimKind::Memcg => Order::of(0),
            _ if nth % 2 == 1 => Order::of(9),
            ReclaimKind::Compaction => None,
            _ => Order::of(3),
        };
        stats.add(&Stall {
            work,
            order,
            group: None,
            stack: StackId(7),
            duration: Nanoseconds(duration),
            throttled: Nanoseconds(duration / 10),
            scanned: 128,
            reclaimed: 100,
        });
    }
    stats
}

fn frame(name: &str) -> Frame {
    Frame::new(Ok(Name(name.to_owned())))
}

fn kill(pid: Pid, comm: &str, by: Pid, by_comm: &str) -> OomKill {
    let victim = ImageId { pid, ordinal: 0 };
    OomKill { at: Tick(9000), victim, comm: comm.to_owned(), by, by_comm: by_comm.to_owned(), group: None, full: None }
}

/// Returns the reclaim of the whole machine, which exceeds the reclaim of the two processes.
fn machine() -> MachineReclaim {
    let effort = |times, time, scanned| ReclaimActivity {
        times,
        time: Nanoseconds(time),
        scanned,
        scanned_active: scanned / 4,
        taken: scanned.saturating_sub(1),
        reclaimed: scanned / 2,
        deactivated: scanned / 8,
        written: times,
    };
    let thread = |name: &str, work, times| KernelThread {
        name: name.to_owned(),
        work,
        effort: ReclaimActivity {
            times,
            time: Nanoseconds(times * 1_000_000),
            scanned: 64 * times,
            reclaimed: 32 * times,
            ..ReclaimActivity::default()
        },
    };
    MachineReclaim {
        efforts: BTreeMap::from([
            (ReclaimKind::Direct, effort(1, 1_500_000_000, 128)),
            (ReclaimKind::Memcg, effort(905, 48_000_000, 123_456)),
            (ReclaimKind::Compaction, effort(2, 340_000, 0)),
            (ReclaimKind::Kswapd, effort(3, 3_000_000, 192)),
        ]),
        threads: vec![thread("kswapd0", ReclaimKind::Kswapd, 3), thread("kcompactd0", ReclaimKind::Compaction, 1)],
        counters: VmCounters {
            scanned: 123_776,
            reclaimed: 61_888,
            refaults: 12_345,
            swapped_in: 1,
            swapped_out: 0,
            major_faults: 42,
            oom_kills: 2,
            ..VmCounters::default()
        },
        seconds: PerSecond { all: 12, scanning: 9, paging: 2 },
        pressure: Some(PressureTime { some: Duration::from_millis(1_600), full: Some(Duration::from_millis(40)) }),
        missing: vec![String::from("mm_vmscan_throttled")],
    }
}

/// Returns [`waits`] with other numbers of seconds.
pub(crate) fn of_seconds(all: u64, scanning: u64, paging: u64) -> Profile {
    let mut profile = waits();
    if let Some(machine) = &mut profile.run.reclaim {
        machine.seconds = PerSecond { all, scanning, paging };
    }
    profile
}
