//! Tests of the formats of working sets.

use std::time::Duration;

use memtrace_model::{
    Bytes, CacheSize, CacheUse, Comm, DistinctMemory, DistinctPages, Fit, LimitedGroup, MappingKind, PerSecond, Pid,
    ProcessWorkingSet, ReferencedMemory, UnknownFrames, WorkingSetMethod,
};

use super::*;

const MIB: u64 = 1 << 20;

/// Returns a process. Its references were cleared at second `cleared`, and read `read` milliseconds later.
fn process(pid: u32, cleared: u64, read: u64, referenced: u64) -> ProcessWorkingSet {
    let moment = |at: Duration| at..at;
    let cleared = Duration::from_secs(cleared);
    let memory = |resident, referenced| {
        ReferencedMemory::of_mapping(Bytes(resident), Bytes(resident / 2), Bytes(referenced), Bytes(0), Bytes(2 * MIB))
    };
    ProcessWorkingSet {
        pid: Pid(pid),
        comm: Comm::from("=a\u{1b}[2J<b>"),
        cleared: moment(cleared),
        read: moment(cleared + Duration::from_millis(read)),
        kinds: vec![(MappingKind::Heap, memory(404 * MIB, referenced)), (MappingKind::File, memory(MIB, 4096))],
        hugetlb: Bytes(0),
        locked: None,
        paused: false,
        sizes_time: Duration::ZERO,
    }
}

fn reading(processes: Vec<ProcessWorkingSet>) -> WorkingSets {
    WorkingSets { requested: Duration::from_secs(1), processes, ..WorkingSets::default() }
}

fn profile() -> Vec<WorkingSets> {
    let points = [(1, 2), (10, 10), (100, 28), (1000, 30), (10_000, 32), (33_000, 33)];
    let readings = points.map(|(time, referenced)| reading(vec![process(7, 0, time, referenced * MIB)]));
    readings.map(|sets| WorkingSets { is_cumulative: true, ..sets }).into()
}

fn written(format: Format, readings: &[WorkingSets]) -> String {
    let mut out = Vec::new();
    write_all(format, readings, &ComparedSizes::default(), &mut out).expect("writing to memory");
    String::from_utf8(out).expect("text")
}

#[test]
fn text_has_a_line_for_each_process_and_their_sum() {
    let mut sets = reading(vec![process(7, 0, 1003, 28 * MIB), process(4711, 0, 1003, 12 * MIB)]);
    sets.unmeasured.exited = 2;
    sets.processes[1].hugetlb = Bytes(2 * MIB);
    assert_eq!(
        written(Format::Text, &[sets]),
        "   TIME    EST(s)     RSS     PSS     REF    REF%   LEAST    HEAP    ANON    FILE   STACK   SHMEM    HUGE    SWAP      PID  PROCESS\n\
         \x20  0:01     1.003    405M    202M   28.0M    6.9%   28.0M   28.0M      0B   4.00K      0B      0B      0B      0B        7  =a\u{fffd}[2J<b>\n\
         \x20  0:01     1.003    405M    202M   12.0M    3.0%   12.0M   12.0M      0B   4.00K      0B      0B      0B      0B     4711  =a\u{fffd}[2J<b>\n\
         \x20  0:01     1.003    810M    405M   40.0M    4.9%   40.0M   40.0M      0B   8.00K      0B      0B      0B      0B           2 processes\n\
         \x20 not measured: 2.00 MiB of hugetlbfs, which the RSS does not contain\n\
         \x20 not measured: 2 processes (exited)\n\
         \n\
         40.01 MiB of 810.00 MiB resident in 2 processes were touched within 1.003 s.\n\
         Memory of the machine: not assessed, because this run is shorter than 30 s.\n"
    );
}

#[test]
fn pages_with_known_frames_count_once() {
    let sets = reading(vec![process(7, 0, 1000, 28 * MIB), process(8, 0, 1000, 12 * MIB)]);
    let pages = |[resident, referenced, least]: [u64; 3]| DistinctPages {
        resident: Bytes(resident * MIB),
        referenced: Bytes(referenced * MIB),
        least_referenced: Bytes(least * MIB),
    };
    let kinds = vec![(MappingKind::Heap, pages([404, 30, 28])), (MappingKind::File, pages([1, 0, 0]))];
    let counted = WorkingSets { distinct: Some(Ok(DistinctMemory { kinds })), ..sets };
    let text = written(Format::Text, std::slice::from_ref(&counted));
    let sum = "    405M    405M   30.0M    7.4%   28.0M   30.0M      0B      0B ";
    assert!(text.lines().any(|line| line.contains(sum) && line.ends_with("2 processes")), "{text}");
    let summary = "30.00 MiB of 405.00 MiB resident in 2 processes were touched within 1 s. Huge pages count as a whole, and \
                   processes may have touched the same shared pages: it was at least 28.00 MiB.";
    assert!(text.contains(summary), "{text}");
    let json: serde_json::Value = serde_json::from_str(&written(Format::Json, &[counted])).expect("JSON");
    assert_eq!(json["distinct"]["total"]["rss_bytes"], 405 * MIB);
    assert_eq!(json["distinct"]["kinds"]["heap"]["referenced_bytes"], 30 * MIB);
    assert_eq!(json["total"]["rss_bytes"], 810 * MIB);
    assert!(json.get("unknown_frames").is_none());
}

#[test]
fn sums_say_that_shared_pages_count_once_in_each_process() {
    let mut sets = reading(vec![process(7, 0, 1000, 28 * MIB), process(8, 0, 1000, 12 * MIB)]);
    for process in &mut sets.processes {
        process.kinds[0].1.shared = Bytes(81 * MIB);
    }
    sets.distinct = Some(Err(UnknownFrames::NotPermitted));
    let text = written(Format::Text, std::slice::from_ref(&sets));
    let expected = "\n  counted once in each process: 20.0% of the pages, which are shared; the kernel shows no page frames without \
                    CAP_SYS_ADMIN\n";
    assert!(text.contains(expected), "{text}");
    let json = written(Format::Json, &[sets]);
    crate::json_lines::assert_round_trip::<memtrace_json::WorkingSets<'static>>(&json);
    assert!(json.contains("\"distinct\":null,\"unknown_frames\":\"not_permitted\""), "{json}");
}

#[test]
fn summary_of_a_profile_has_its_knee() {
    assert_eq!(
        summary(&profile()).as_deref(),
        Some("30.00 MiB of 405.00 MiB resident were touched within 1 s, 33.00 MiB within 33 s.")
    );
    assert_eq!(summary(&[]), None);
    assert_eq!(summary(&[reading(Vec::new())]), None);
}

#[test]
fn page_faults_are_a_lower_bound() {
    let sets = reading(vec![process(7, 0, 1000, 28 * MIB)]);
    let sets = WorkingSets { method: WorkingSetMethod::Faults, lost_faults: Some(3), ..sets };
    let sizes = ComparedSizes { tlb_reach: Some(Bytes(MIB)), ..ComparedSizes::default() };
    assert_eq!(comparison(std::slice::from_ref(&sets), &sizes), None);
    let text = written(Format::Text, std::slice::from_ref(&sets));
    assert!(text.contains("  not counted: 3 page faults, which were lost\n"), "{text}");
    let expected = "28.00 MiB of 405.00 MiB resident had a page fault within 1 s. This is a lower bound: touches of pages that were \
                    mapped before cause no fault.";
    assert!(text.contains(expected), "{text}");
    assert!(written(Format::Json, &[sets]).contains("\"lost_page_faults\":3"));
}

#[test]
fn use_of_the_cache_is_assessed() {
    let with = |references, misses| {
        let sets = reading(vec![process(7, 0, 1000, 28 * MIB)]);
        written(Format::Text, &[WorkingSets { cache: Some(CacheUse { references, misses }), ..sets }])
    };
    for (references, misses, expected) in [
        (2_000_000, 2000, "2,000,000 references in 1 s, 99.9% hits: the memory that is in use fits into it."),
        (2_000_000, 500_000, "2,000,000 references in 1 s, 75.0% hits: the memory that is in use exceeds it."),
        (1, 0, "1 reference in 1 s, 100% hits: too few for an assessment."),
        (0, 0, "0 references in 1 s: too few for an assessment."),
    ] {
        let text = with(references, misses);
        assert!(text.contains(&format!("\nLast-level cache: {expected}\n")), "{text}");
    }
    let sets = reading(vec![process(7, 0, 1000, 28 * MIB)]);
    assert!(written(Format::Json, std::slice::from_ref(&sets)).contains("\"last_level_cache\":null"));
    let sets = WorkingSets { cache: Some(CacheUse { references: 7, misses: 5 }), ..sets };
    assert!(written(Format::Json, &[sets]).contains("\"last_level_cache\":{\"references\":7,\"misses\":5}"));
}

#[test]
fn summary_of_separate_readings_has_their_range() {
    let readings = [(0, 5), (10, 9), (20, 7)];
    let readings = readings.map(|(cleared, referenced)| reading(vec![process(7, cleared, 1000, referenced * MIB)]));
    assert_eq!(
        summary(&readings).as_deref(),
        Some("7.00 MiB of 405.00 MiB resident were touched within 1 s. All readings: 5.00 MiB to 9.00 MiB.")
    );
}

#[test]
fn csv_and_json_have_the_same_values() {
    let sets = [reading(vec![process(7, 0, 1003, 28 * MIB)])];
    let text = written(Format::Csv, &sets);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().expect("a head").clone();
    let row = reader.records().next().expect("a line").expect("fields");
    let value = |name: &str| row[heads.iter().position(|head| head == name).expect("a column")].to_owned();
    let text = written(Format::Json, &sets);
    crate::json_lines::assert_round_trip::<memtrace_json::WorkingSets<'static>>(&text);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let process = &json["processes"][0];
    assert_eq!(value("referenced_bytes"), process["total"]["referenced_bytes"].to_string());
    assert_eq!(value("heap_rss_bytes"), process["kinds"]["heap"]["rss_bytes"].to_string());
    assert_eq!(value("file_referenced_bytes"), process["kinds"]["file"]["referenced_bytes"].to_string());
    assert_eq!(value("estimated_s"), "1.003000");
    assert_eq!(value("process"), "'=a\u{fffd}[2J<b>");
    assert_eq!(json["kind"], "working-sets");
}

#[test]
fn picture_of_a_profile_marks_the_knee_on_both_axes() {
    let picture = written(Format::Svg, &profile());
    assert_eq!(picture.matches("knee: 30.00 MiB within 1 s").count(), 2, "{picture}");
    assert!(picture.contains("logarithmic") && !picture.contains("<b>"), "{picture}");
    let one = written(Format::Svg, &profile()[..1]);
    assert!(one.contains("a curve needs several readings"), "{one}");
}

#[test]
fn last_reading_is_compared_with_caches_and_the_limit() {
    let caches = [(2, 1), (3, 64)].map(|(level, mebibytes)| CacheSize { level, size: Bytes(mebibytes * MIB) });
    let sizes = ComparedSizes {
        caches: caches.into(),
        tlb_reach: Some(Bytes(8 * MIB)),
        memory_limit: Some(Bytes(512 * MIB)),
        ..ComparedSizes::default()
    };
    let readings = [reading(vec![process(7, 0, 1000, 32 * MIB - 4096)])];
    assert_eq!(
        comparison(&readings, &sizes).as_deref(),
        Some(
            "32.00 MiB are 4.0 times the TLB reach (8.00 MiB), 32.0 times the L2 cache (1.00 MiB), 50% of the L3 cache (64.00 MiB) and 6% of the memory \
             limit (512.00 MiB)."
        )
    );
    let caches = ComparedSizes { caches: sizes.caches[..1].into(), ..ComparedSizes::default() };
    assert_eq!(comparison(&readings, &caches).as_deref(), Some("32.00 MiB are 32.0 times the L2 cache (1.00 MiB)."));
    assert_eq!(comparison(&readings, &ComparedSizes::default()), None);
    assert_eq!(comparison(&[], &sizes), None);
}

#[test]
fn limit_that_was_reached_is_named() {
    let group = |seconds| LimitedGroup { path: String::from("/app"), limit: Bytes(64 * MIB), seconds };
    let of_limits = |seconds| {
        let sets = WorkingSets { limits: vec![group(seconds)], ..WorkingSets::default() };
        assessment::of_limits(&sets).collect::<Vec<_>>()
    };
    let expected = "The memory limit of /app (64.00 MiB) is smaller than the working set: it was reached in 31 of 40 seconds, \
                    and 1 MiB or more was read back in 30.";
    assert_eq!(of_limits(PerSecond { all: 40, scanning: 31, paging: 30 }), [expected]);
    assert_eq!(of_limits(PerSecond { all: 40, ..PerSecond::default() }), [""; 0]);
}

#[test]
fn memory_of_the_machine_is_assessed_after_half_a_minute() {
    let of_machine = |all, scanning, paging| {
        let sets =
            WorkingSets { seconds: PerSecond { all, scanning, paging }, kswapd_runs: 4, ..WorkingSets::default() };
        assessment::of_machine(&sets, true)
    };
    assert!(of_machine(29, 29, 29).contains("not assessed, because this run is shorter than 30 s"));
    assert_eq!(
        of_machine(30, 0, 0),
        "Memory of the machine is larger than the working set: pages were scanned in 0 of 30 seconds, 1 MiB or more was read \
         back in 0, and kswapd ran 4 times."
    );
    assert!(of_machine(30, 14, 0).contains("was short at times"));
    assert!(of_machine(30, 15, 14).contains("is about as large as the working set"));
    assert!(of_machine(30, 0, 15).contains("is smaller than the working set"));
    assert!(
        assessment::of_machine(
            &WorkingSets { seconds: PerSecond { all: 30, ..PerSecond::default() }, ..WorkingSets::default() },
            false
        )
        .ends_with("There is no swap device, so paging of anonymous memory cannot show.")
    );
}

#[test]
fn fit_is_compared_with_memory_high() {
    let fit = |high| Fit { needed: Bytes(64 * MIB), has_swap: false, high };
    let text = assessment::of_fit(&fit(Some(Bytes(32 * MIB))));
    assert!(text.starts_with("Estimated memory limit: 64.00 MiB, plus memory of the kernel"), "{text}");
    assert!(text.ends_with("memory.high (32.00 MiB) is below the estimate: expect paging."), "{text}");
    assert!(
        assessment::of_fit(&fit(Some(Bytes(128 * MIB)))).ends_with("memory.high (128.00 MiB) is above the estimate.")
    );
    assert!(assessment::of_fit(&fit(None)).ends_with("because there is no swap device."));
}
