use super::*;

/// All optional features with BPF maps of their own.
const USES: MapUses = MapUses { tags: true, activity: true, samples: true };

const FULL: MemoryPlan = MemoryPlan {
    limit: None,
    maps: MapSizes::FULL,
    ring_size: Bytes(16 << 20),
    mmap_ring: Bytes(1 << 19),
    live: 32_000_000,
    stacks: 1 << 20,
    ended: EndedLimits { stacks: 1 << 22, call_paths: 1 << 23, waiting: 1 << 20 },
    registry: registry::Limits { images: 1 << 17, mappings: 1 << 20, thread_names: 1 << 17 },
    profile_programs: 1 << 16,
    profile_stacks: 1 << 20,
    patched: 0,
    files: 1 << 16,
    unwinding: UnwindLimits { copies: Bytes(64 << 20), copy_count: 1 << 18, frame_data: Bytes(16 << 20) },
    generated_names: Bytes(32 << 20),
    has_histograms: false,
    recorder: Some(RecorderLimits::FULL),
};

/// Returns the memory of everything that a plan limits. A new field of a plan does not compile without a line here.
fn memory(plan: MemoryPlan, rings: u32, processors: u64) -> u64 {
    let MemoryPlan {
        limit: _,
        maps,
        ring_size,
        mmap_ring,
        live,
        stacks,
        ended: EndedLimits { stacks: ended_stacks, call_paths, waiting },
        registry: registry::Limits { images, mappings, thread_names },
        profile_programs,
        profile_stacks,
        patched,
        files,
        // The copies count as stacks.
        unwinding: UnwindLimits { copies, copy_count: _, frame_data },
        generated_names,
        has_histograms,
        recorder,
    } = plan;
    let (stack, ended_stack) = stack_memory(has_histograms);
    let none = RecorderLimits {
        call_paths: 0,
        grouped_stacks: 0,
        book: Bytes(0),
        waiting_stacks: 0,
        ..RecorderLimits::WITHOUT_FILE
    };
    let stack = if recorder.is_some() { stack + RECORDED_STACK } else { stack };
    let RecorderLimits {
        call_paths: recorded_paths,
        grouped_stacks,
        known_totals,
        queued_rows,
        book,
        waiting_stacks,
        divisor: _,
    } = recorder.unwrap_or(none);
    let rings = u64::from(rings);
    let entries = [
        (live, BLOCK),
        (u64::from(stacks) * rings, stack),
        (ended_stacks as u64, ended_stack),
        (waiting as u64, WAITING_ENDED),
        ((call_paths + recorded_paths) as u64, CALL_PATH),
        (grouped_stacks as u64, ENDED_STACK),
        (known_totals as u64, KNOWN_TOTAL),
        (queued_rows as u64, QUEUED_ROW),
        (book.0, 1),
        (waiting_stacks as u64, WAITING_STACK),
        (images as u64, IMAGE),
        (mappings as u64, MAPPING),
        (thread_names as u64, THREAD_NAME),
        (profile_programs as u64, PROFILE_PROGRAM),
        (profile_stacks as u64, PROFILE_STACK),
        (patched as u64, PATCHED_PROCESS),
        (files as u64, FILE),
        (u64::from(maps.rows), ROWS),
        (rings, ring_size.0),
        (processors, mmap_ring.0),
    ];
    let bytes = maps.memory().0 + copies.0 + frame_data.0 + generated_names.0 * if recorder.is_some() { 2 } else { 1 };
    PROGRAM + bytes + entries.iter().map(|(count, bytes)| count * bytes).sum::<u64>()
}

#[test]
fn everything_fits_into_every_limit_from_the_smallest_on() {
    for (rings, processors) in [(1, 1), (2, 2), (4, 8), (4, 64), (16, 256), (16, 4096)] {
        let least = smallest(rings, processors, FULL.maps.uses);
        for limit in (least.0..1 << 30).step_by(1 << 20) {
            let with_histograms = MemoryPlan { has_histograms: true, ..FULL };
            let plan = MemoryPlan::within(Bytes(limit), rings, processors, with_histograms).unwrap();
            assert!(memory(plan, rings, processors) <= limit && plan.stacks > 25, "{limit}: {plan:?}");
            let without_file = MemoryPlan { recorder: Some(RecorderLimits::WITHOUT_FILE), ..FULL };
            let plan = MemoryPlan::within(Bytes(limit), rings, processors, without_file).unwrap();
            assert!(memory(plan, rings, processors) <= limit, "{limit}: {plan:?}");
            assert!(plan.recorder.unwrap().book > Bytes(1 << 20), "{limit}: {plan:?}");
            let of_trends = MemoryPlan { recorder: Some(RecorderLimits::OF_TRENDS), ..FULL };
            let plan = MemoryPlan::within(Bytes(limit), rings, processors, of_trends).unwrap();
            assert!(memory(plan, rings, processors) <= limit, "{limit}: {plan:?}");
            assert!(plan.recorder.unwrap().book > Bytes(1 << 17), "{limit}: {plan:?}");
            let plan = MemoryPlan::within(Bytes(limit), rings, processors, FULL).unwrap();
            let used = memory(plan, rings, processors);
            assert!(used <= limit, "{used} of {limit} bytes, {rings} rings: {plan:?}");
            assert!(plan.ring_size.0 >= SMALLEST_RING && plan.live > 10_000 && plan.stacks > 50, "{limit}: {plan:?}");
            assert!(plan.unwinding.frame_data.0 > 1 << 19 && plan.generated_names.0 > 1 << 18, "{limit}: {plan:?}");
            assert!(plan.registry.images > 250 && plan.registry.mappings > 2500 && plan.files > 200, "{plan:?}");
            assert!(plan.profile_stacks > 1000 && plan.profile_programs > 200, "{plan:?}");
            assert!(plan.ended.waiting > 100, "{plan:?}");
            assert!(plan.unwinding.copy_count <= (plan.stacks as usize + 1) * rings as usize, "{plan:?}");
        }
    }
}

#[test]
fn patched_processes_take_memory_of_live_blocks() {
    let full = MemoryPlan { patched: MAX_PATCHED, ..FULL };
    for limit in (smallest(4, 16, full.maps.uses).0..DEFAULT_LIMIT.0).step_by(1 << 20) {
        let plan = MemoryPlan::within(Bytes(limit), 4, 16, full).unwrap();
        assert!(memory(plan, 4, 16) <= limit && plan.patched > 100 && plan.live > 5000, "{limit}: {plan:?}");
    }
    let of_trends = MemoryPlan { recorder: Some(RecorderLimits::OF_TRENDS), ..full };
    for (limit, full) in [(DEFAULT_LIMIT, of_trends), (RECORDED_LIMIT, full)] {
        let plan = MemoryPlan::within(limit, 4, 16, full).unwrap();
        assert!(plan.patched == 5000 && plan.live >= 200_000, "{plan:?}");
    }
    let config = |line: &str| crate::cli::resolved_trace(line).expect("a valid configuration");
    let patched = |line: &str| MemoryPlan::full(&config(line)).patched;
    assert_eq!([patched("--all --allow-patching"), patched("--all --sample-interval 1M")], [MAX_PATCHED, 0]);
}

#[test]
fn the_smallest_limit_is_the_first_that_suffices() {
    assert_eq!(smallest(2, 2, MapUses::default()), Bytes(40 << 20));
    for (rings, processors) in [(2, 2), (16, 8)] {
        let less = Bytes(smallest(rings, processors, FULL.maps.uses).0 - (1 << 20));
        assert_eq!(MemoryPlan::within(less, rings, processors, FULL), None);
        let with_uses = MemoryPlan { maps: MapSizes::FULL.with(USES), ..FULL };
        let least = smallest(rings, processors, USES);
        assert!(MemoryPlan::within(least, rings, processors, with_uses).is_some());
        assert_eq!(MemoryPlan::within(Bytes(least.0 - (1 << 20)), rings, processors, with_uses), None);
    }
}

#[test]
fn a_history_for_trends_is_small() {
    let full = MemoryPlan::full(&config(Target::Pids { pids: vec![Pid(1)], children: false }, None));
    assert_eq!(full.recorder, Some(RecorderLimits::OF_TRENDS));
    assert_eq!(full.history_limit(&config(Target::Pids { pids: vec![Pid(1)], children: false }, None)), None);
    let without = MemoryPlan { recorder: None, ..full };
    let used = |plan| memory(plan, 2, 2) - memory(without, 2, 2);
    // 2^20 stacks of running images in each of two shards have a path each, and there is a second table of generated names.
    let of_stacks = 2 * (1 << 20) * RECORDED_STACK + full.generated_names.0;
    assert!(used(full) - of_stacks <= 42 << 20, "{}", used(full));
}

#[test]
fn a_large_limit_changes_nothing() {
    let limit = Bytes(1 << 40);
    assert_eq!(MemoryPlan::within(limit, 4, 8, FULL), Some(MemoryPlan { limit: Some(limit), ..FULL }));
}

#[test]
fn options_remain_upper_limits() {
    let full = MemoryPlan { ring_size: Bytes(4096), live: 7, ..FULL };
    let plan = MemoryPlan::within(Bytes(64 << 20), 2, 2, full).unwrap();
    assert_eq!((plan.ring_size, plan.live), (Bytes(4096), 7));
}

#[test]
fn shares_add_up_to_the_whole() {
    let all = shares::LIVE_BLOCKS
        + shares::STACKS
        + shares::ENDED_STACKS
        + shares::WAITING_ENDED
        + shares::CALL_PATHS
        + shares::REGISTRY
        + shares::COPIES
        + shares::MMAP_RINGS;
    assert_eq!(all, shares::ALL);
    let registry = registry_shares::IMAGES
        + registry_shares::MAPPINGS
        + registry_shares::PROFILE_PROGRAMS
        + registry_shares::PROFILE_STACKS
        + registry_shares::THREAD_NAMES
        + registry_shares::FILES;
    assert_eq!(registry, registry_shares::ALL);
    let recorder = recorder_ninths::CALL_PATHS
        + recorder_ninths::GROUPED_STACKS
        + recorder_ninths::KNOWN_TOTALS
        + recorder_ninths::QUEUED_ROWS
        + recorder_ninths::WAITING_STACKS;
    assert_eq!(recorder, 9);
}

/// The machine has 5,000 processes with ten executable mappings each, 350,000 live blocks, and 4,000 open object files. All
/// processes can be Go programs.
#[test]
fn the_default_suffices_for_a_busy_machine() {
    let of_trends = MemoryPlan { recorder: Some(RecorderLimits::OF_TRENDS), ..FULL };
    for (limit, full) in [(DEFAULT_LIMIT, of_trends), (RECORDED_LIMIT, FULL)] {
        let plan = MemoryPlan::within(limit, 4, 16, full).unwrap();
        assert!(plan.registry.images >= 5000 && plan.registry.mappings >= 50_000, "{plan:?}");
        assert!(plan.live >= 350_000 && plan.files >= 4000, "{plan:?}");
        assert!(plan.profile_programs >= 5000 && plan.profile_stacks >= 30_000, "{plan:?}");
        assert_eq!(plan.maps.memory(), MapSizes::FULL.memory());
    }
}

fn config(target: Target, memory_limit: Option<u64>) -> Config {
    let mut config = crate::cli::resolved_trace("--all").expect("a valid configuration");
    config.tuning.memory_limit = memory_limit.map(Bytes);
    Config { target, ..config }
}

#[test]
fn only_selections_have_a_default_limit() {
    const MIB: u64 = 1 << 20;
    let own = |limit, free| Some(OwnLimit { limit: Bytes(limit * MIB), free: Bytes(free * MIB) });
    let of = |target, given, own| {
        let found = limit(&config(target, given), own, Bytes(40 * MIB));
        found.map(|(limit, origin)| (limit.0 / MIB, origin))
    };
    let all = || Target::Selected { rules: Vec::new(), waits: false };
    let pid = || Target::Pids { pids: vec![Pid(1)], children: false };
    assert_eq!(of(all(), None, None), Some((256, Origin::Default)));
    assert_eq!(of(all(), None, own(8192, 8000)), Some((256, Origin::Default)));
    assert_eq!(of(all(), None, own(512, 400)), Some((128, Origin::Cgroup)));
    assert_eq!(of(all(), None, own(100, 90)), Some((40, Origin::Cgroup)), "a quarter is too little");
    assert_eq!(of(all(), None, own(100, 30)), Some((30, Origin::Cgroup)), "refused");
    assert_eq!(of(all(), Some(700 * MIB), own(512, 400)), Some((700, Origin::Option)));
    assert_eq!(of(pid(), None, None), None);
    assert_eq!(of(pid(), None, own(8192, 8000)), None);
    assert_eq!(of(pid(), None, own(600, 400)), Some((400, Origin::Cgroup)));
    assert_eq!(of(pid(), Some(64 * MIB), own(600, 400)), Some((64, Origin::Option)));
}
