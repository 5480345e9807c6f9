//! Stalls on memory, compared with the kernel's tracepoints and counters.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use memtrace_tests::kernel_trace::TracepointHit;
use memtrace_tests::memory_cgroup::Version;
use memtrace_tests::process::page_faults;
use memtrace_tests::report::{ProcessReport, Stalls};
use memtrace_tests::swap::pages_swapped_in;
use memtrace_tests::{
    Cgroup, KernelTrace, MemoryCgroup, Report, Scratch, Stack, Swap, Totals, Trace, large_file, recording_report,
    victim,
};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 64 * MIB;
/// Number of bytes that the victim reads.
const FILE: u64 = 512 * MIB;

fn sum(hits: &[&TracepointHit], field: &str) -> u64 {
    hits.iter().map(|hit| hit.fields[field]).sum()
}

/// Returns the hits of tracepoint `name` by thread `tid`.
fn hits_by<'a>(hits: &'a [TracepointHit], name: &str, tid: u32) -> Vec<&'a TracepointHit> {
    hits.iter().filter(|hit| hit.name == name && hit.tid == tid).collect()
}

/// Returns the stalls of `process` in memcg reclaim. The process may also stall in global reclaim, which depends on the
/// machine.
fn memcg(process: &ProcessReport) -> &Stalls {
    &process.stalls.as_ref().expect("it is a reclaim report")["memcg"]
}

/// Returns the name of the cgroup's directory.
fn directory_name(group: &Cgroup) -> &str {
    group.path().file_name().and_then(OsStr::to_str).expect("the path ends in a name")
}

/// Asserts that the limit of `group` caused all of `memcg_stalls`, and that the report has the memory statistics of the
/// group.
fn assert_caused_by(group: &MemoryCgroup, report: &Report, memcg_stalls: &Stalls) {
    let groups = report.cgroups.as_ref().expect("it is a reclaim report");
    let for_limits: Vec<_> = groups.iter().filter(|group| group.stalls.contains_key("memcg")).collect();
    assert_eq!(for_limits.len(), 1, "not for one limit: {groups:#?}");
    let entry = for_limits[0];
    assert_eq!((entry.id, &entry.stalls["memcg"]), (Some(group.id()), memcg_stalls));
    assert!(
        entry.path.as_ref().is_some_and(|path| path.ends_with(&format!("/{}", directory_name(group)))),
        "{entry:#?}"
    );
    // memcg reclaim looks for single pages: order 0.
    let orders: Vec<_> = memcg_stalls.orders.iter().map(|class| (class.order, class.count)).collect();
    assert_eq!(orders, [(Some(0), memcg_stalls.count)]);

    let memory = entry.memory.as_ref().expect("the report has it");
    assert_eq!((memory.version == 2, memory.limit_bytes), (group.version() == Version::Two, Some(LIMIT)));
    assert!(memory.current_bytes.is_some_and(|used| used > 0 && used <= LIMIT), "{memory:#?}");
    assert_eq!(memory.pressure.is_some(), group.has_pressure(), "{memory:#?}");
    // cgroup v2 flushes per-CPU counters late. Each counter can be off by up to 64 pages
    // (`MEMCG_CHARGE_BATCH`).
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let slack = if group.version() == Version::Two { 64 * processors } else { 0 };
    match (memory.refaulted_pages, group.refaults()) {
        (Some(reported), Some(counted)) => assert!(reported.abs_diff(counted) <= slack, "{reported} of {counted}"),
        (reported, counted) => assert_eq!(reported, counted, "both sides lack refaults, or neither"),
    }
}

#[test]
fn memcg_reclaim_stalls_match_kernel_tracepoints() {
    let scratch = Scratch::new();
    let (path, times) = large_file::create(&scratch, LIMIT, FILE);
    let group = MemoryCgroup::with_memory(LIMIT);
    // The parent cgroup has the limit, and the victim leaves its cgroup before the report.
    let inner = group.child();
    let mut victim =
        victim::start_with("memcg_limit", &["read", path.to_str().expect("the path is UTF-8"), &times.to_string()]);
    let pid = victim.pid();
    inner.add_process(pid);
    let kernel = KernelTrace::start(&[
        "vmscan/mm_vmscan_memcg_reclaim_begin",
        "vmscan/mm_vmscan_memcg_reclaim_end",
        "vmscan/mm_vmscan_direct_reclaim_end",
        "compaction/mm_compaction_end",
        "vmscan/mm_vmscan_lru_isolate",
    ]);
    let recording = scratch.join("reclaim.memtrace");
    let tracer = Trace::victim(&victim).options(&["--events", "reclaim", "--record"]).option(&recording).start();
    victim.work();
    group.move_to_root(pid);
    let report = tracer.stop().report();
    let hits = kernel.read();
    let pgscan_direct = (group.version() == Version::Two).then(|| group.stat("pgscan_direct"));
    victim.finish();

    report.assert_nothing_lost();
    let [process] = &report.processes[..] else { panic!("not one process: {:#?}", report.processes) };
    let memcg_stalls = memcg(process);
    let [begins, ends] = ["begin", "end"].map(|part| hits_by(&hits, &format!("mm_vmscan_memcg_reclaim_{part}"), pid));
    let isolated: Vec<_> = hits_by(&hits, "mm_vmscan_lru_isolate", pid);
    let inactive: Vec<_> = isolated.into_iter().filter(|hit| hit.text.contains("lru=inactive")).collect();
    // All pages beyond the limit had to be reclaimed.
    assert!(sum(&inactive, "nr_scanned") * 4096 > FILE - 2 * LIMIT, "{} stalls", ends.len());
    assert_eq!((memcg_stalls.count, begins.len()), (ends.len() as u64, ends.len()), "count");
    assert_eq!(memcg_stalls.reclaimed_pages, sum(&ends, "nr_reclaimed"), "freed");
    assert_eq!(memcg_stalls.scanned_pages, sum(&inactive, "nr_scanned"), "scanned");
    if let Some(scanned) = pgscan_direct {
        assert_eq!(memcg_stalls.scanned_pages, scanned, "memory.stat");
    }
    assert_caused_by(&group, &report, memcg_stalls);
    let recorded = recording_report::read(&recording, &[]);
    assert_eq!((&recorded.reclaim, &recorded.cgroups), (&report.reclaim, &report.cgroups));

    // The machine's totals include other processes.
    let machine = report.reclaim.as_ref().expect("it is a reclaim report");
    assert!(machine.efforts["memcg"].scanned_pages >= memcg_stalls.scanned_pages, "{machine:#?}");
    assert!(machine.vmstat.scanned_pages >= memcg_stalls.scanned_pages, "{machine:#?}");

    // memtrace and the tracepoints read their clocks shortly after each other.
    let durations: Vec<Duration> = begins.iter().zip(&ends).map(|(begin, end)| end.at - begin.at).collect();
    let traced: Duration = durations.iter().sum();
    let slack = Duration::from_micros(50)
        * u32::try_from(durations.len()).expect("the number of stalls fits in 32 bits")
        + traced / 10;
    assert!(
        traced.abs_diff(Duration::from_nanos(memcg_stalls.time_ns)) < slack,
        "{traced:?} and {} ns",
        memcg_stalls.time_ns
    );
    let longest = *durations.iter().max().expect("the victim stalls");
    let reported = Duration::from_nanos(memcg_stalls.longest_ns);
    assert!(longest.abs_diff(reported) < longest / 2 + Duration::from_micros(100), "{longest:?} and {reported:?}");
    assert_eq!(memcg_stalls.latencies.iter().map(|latency| latency.count).sum::<u64>(), memcg_stalls.count);
    assert!(Duration::from_secs_f64(report.duration_s) >= Duration::from_nanos(memcg_stalls.time_ns));

    // Other kinds of stall match too.
    for (kind, tracepoint) in [("direct", "mm_vmscan_direct_reclaim_end"), ("compaction", "mm_compaction_end")] {
        let count = process.stalls.as_ref().and_then(|stalls| stalls.get(kind)).map_or(0, |totals| totals.count);
        assert_eq!(count, hits_by(&hits, tracepoint, pid).len() as u64, "{kind}");
    }

    // All memcg stalls are in the function that reads.
    let count = |stack: &Stack| stack.content.totals.stall_count.expect("it is a reclaim report");
    let all: u64 = process.stalls.iter().flatten().map(|(_, totals)| totals.count).sum();
    assert_eq!(report.stacks.iter().map(count).sum::<u64>(), all);
    let reading = report.stacks.iter().filter(|stack| stack.names().contains(&"read_all"));
    let shown: Vec<_> =
        report.stacks.iter().map(|stack| (&stack.end, stack.content.totals.stall_count, stack.names())).collect();
    assert!(reading.map(count).sum::<u64>() >= memcg_stalls.count, "{shown:#?}");
    for stack in &report.stacks {
        assert_eq!(stack.end, "complete", "{:?}", stack.names());
    }
}

#[test]
fn oom_killed_process_keeps_its_last_profile() {
    let group = MemoryCgroup::with_memory(LIMIT);
    let inner = group.child();
    // The file is in memory, because writing to a disk may charge memory.
    let scratch = Scratch::in_memory();
    let count = scratch.join("count");
    let mut victim =
        victim::start_with("memcg_limit", &["eat", &MIB.to_string(), count.to_str().expect("the path is UTF-8")]);
    let pid = victim.pid();
    inner.add_process(pid);
    let recordings = ["blocks", "stalls"].map(|name| scratch.join(format!("{name}.memtrace")));
    let trace = |recording| Trace::victim(&victim).option("--record").option(recording);
    let blocks = trace(&recordings[0]).start();
    let stalls = trace(&recordings[1]).options(&["--events", "reclaim"]).start();
    victim.process().write_line("");
    let status = victim.process().wait_with_open_stdin();
    assert!(!status.success(), "the victim was not killed, but ended with {status}");
    let blocks = blocks.wait().report();
    let stalls = stalls.wait().report();
    let written = fs::read(&count).expect("the victim has written its count");
    let written = u64::from_ne_bytes(written.try_into().expect("the count has 8 bytes"));
    assert!((32..=64).contains(&written), "{written} blocks of 1 MiB within 64 MiB");

    for report in [&blocks, &stalls] {
        report.assert_nothing_lost();
        let [process] = &report.processes[..] else { panic!("not one process: {:#?}", report.processes) };
        assert_eq!((process.pid, process.ended.as_deref()), (pid, Some("oom_kill")));
        let killed: Vec<_> = report.oom_kills.iter().filter(|kill| kill.pid == pid).collect();
        let [kill] = killed[..] else { panic!("not one OOM kill: {:#?}", report.oom_kills) };
        assert_eq!((&*kill.comm, kill.by_pid), ("memcg_limit", pid));
        let ends =
            |path: &Option<Cow<'_, str>>, name| path.as_ref().is_some_and(|path| path.ends_with(&format!("/{name}")));
        assert!(
            ends(&kill.cgroup, directory_name(&inner)) && ends(&kill.full_cgroup, directory_name(&group)),
            "{kill:#?}"
        );
    }
    // The blocks that were live at the OOM kill are kept.
    let expected = Totals::live(written * MIB, written).at_exit();
    assert_eq!(blocks.totals, expected);
    let allocated: Totals =
        blocks.stacks.iter().filter(|stack| stack.names().contains(&"eat")).map(|stack| stack.totals).sum();
    assert_eq!(allocated, expected);
    for (report, recording) in [&blocks, &stalls].into_iter().zip(&recordings) {
        let recorded = recording_report::read(recording, &[]);
        assert_eq!((recorded.totals, &recorded.oom_kills), (report.totals, &report.oom_kills));
        assert_eq!(recorded.processes[0].ended, report.processes[0].ended);
    }
    // The process reclaimed memory before it was killed.
    assert!(memcg(&stalls.processes[0]).count > 0);
    assert!(stalls.reclaim.as_ref().is_some_and(|machine| machine.vmstat.oom_kills >= 1));
}

/// Number of bytes that the victim writes repeatedly.
const WRITTEN: u64 = LIMIT + LIMIT / 2;
/// Duration of the writes in seconds.
const SECONDS: u64 = 7;

#[test]
fn swap_reads_match_vmstat_and_are_assessed_as_paging() {
    let scratch = Scratch::new();
    let _swap = Swap::create_in(&scratch, 2 * WRITTEN);
    let group = MemoryCgroup::with_memory_and_swap(LIMIT);
    let mut victim = victim::start_with("memcg_limit", &["swap", &WRITTEN.to_string(), &SECONDS.to_string()]);
    group.add_process(victim.pid());
    let [_, faults_before] = page_faults(victim.pid());
    let read_before = pages_swapped_in();
    let tracer = Trace::victim(&victim).options(&["--events", "reclaim"]).start();
    let read_within = pages_swapped_in();
    victim.work();
    let [_, faults_after] = page_faults(victim.pid());
    let (read, major_faults) = (pages_swapped_in() - read_within, faults_after - faults_before);
    let report = tracer.stop().report();
    let read_all = pages_swapped_in() - read_before;
    victim.finish();

    report.assert_nothing_lost();
    let [process] = &report.processes[..] else { panic!("not one process: {:#?}", report.processes) };
    assert_caused_by(&group, &report, memcg(process));
    let machine = report.reclaim.as_ref().expect("it is a reclaim report");
    // No other process has pages in swap, unless the machine runs short of memory.
    let reported = machine.vmstat.swapped_in_pages;
    assert!((read..=read_all).contains(&reported), "{reported} of {read} to {read_all}");
    // From the second round on, some pages are in swap.
    assert!(reported * 4096 > LIMIT, "{reported} pages");
    // A major fault also reads neighbouring pages.
    assert!(
        major_faults > 0 && major_faults <= reported && machine.vmstat.major_faults >= major_faults,
        "{major_faults} major faults: {machine:#?}"
    );
    let groups = report.cgroups.as_ref().expect("it is a reclaim report");
    let memory = groups.iter().find(|entry| entry.id == Some(group.id())).and_then(|entry| entry.memory.as_ref());
    let assessment = if group.refaults().is_some() { "beyond" } else { "near" };
    assert_eq!(memory.map(|memory| &*memory.assessment), Some(assessment), "{memory:#?}");
    assert_eq!(machine.assessment, "beyond", "{machine:#?}");
}
