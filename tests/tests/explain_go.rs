//! Compares the totals of Go's runtime in the output of `memtrace explain` with `runtime.MemStats`, which the program reads
//! itself.

mod long;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use memtrace_json::GoTotals;
use memtrace_tests::explain::explain;
use memtrace_tests::{Explanation, Scratch, Victim, victim};

const MIB: u64 = 1 << 20;

/// Maximum number of attempts to explain a program while its statistics stay the same. The runtime of an idle program frees buffers
/// of the collector, and returns idle memory to the kernel, after the last collection.
const ATTEMPTS: u32 = 100;

/// Number of explanations of a busy program that are compared.
const EXPLANATIONS: usize = 3;

/// Minimum number of collections, and of readings, before and after the explanation of a busy program.
const COLLECTIONS: u64 = 20;
const READINGS: usize = 100;

/// Size of the spans for stacks and for buffers of the collector (`_StackCacheSize`, runtime/malloc.go; `workbufAlloc`,
/// runtime/mgcwork.go). A busy program has four processors, and each can need another span.
const SPANS: u64 = 4 * (32 << 10);

/// Fields of `runtime.MemStats` by their names.
type MemStats = BTreeMap<String, u64>;

/// Returns one of the totals.
type Total = fn(&GoTotals) -> u64;

/// Totals by the name of the field of `runtime.MemStats`.
const TOTALS: [(&str, Total); 13] = [
    ("HeapAlloc", |totals| totals.heap_alloc_bytes),
    ("HeapInuse", |totals| totals.heap_in_use_bytes),
    ("HeapIdle", |totals| totals.heap_idle_bytes),
    ("HeapReleased", |totals| totals.heap_released_bytes),
    ("HeapSys", |totals| totals.heap_sys_bytes),
    ("StackInuse", |totals| totals.stack_in_use_bytes),
    ("StackSys", |totals| totals.stack_sys_bytes),
    ("MSpanSys", |totals| totals.mspan_sys_bytes),
    ("MCacheSys", |totals| totals.mcache_sys_bytes),
    ("BuckHashSys", |totals| totals.buck_hash_sys_bytes),
    ("GCSys", |totals| totals.gc_sys_bytes),
    ("OtherSys", |totals| totals.other_sys_bytes),
    ("Sys", |totals| totals.sys_bytes),
];

/// Totals that rise with each allocation and fall with each collection. A busy program collects several times during an
/// explanation, and these totals change by a quarter each time. So equal values before and after do not bound them in between:
/// only their range is known. The difference of the first two changes little, and is compared.
const VARYING: [&str; 4] = ["HeapAlloc", "HeapInuse", "HeapIdle", "HeapReleased"];

/// Returns the statistics that the victim reads now.
fn read_statistics(victim: &mut Victim) -> MemStats {
    victim.process().write_line("read");
    victim.read_json()
}

/// Explains the memory of `pid` in a JSON file.
fn explain_in_file(pid: u32) -> Explanation {
    let scratch = Scratch::new();
    let file = scratch.join("memory.json");
    let pid = pid.to_string();
    let output = explain([OsStr::new("--pid"), OsStr::new(&pid), OsStr::new("-o"), file.as_os_str()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&file).expect("memtrace explain has written the file");
    serde_json::from_str(&text).expect("memtrace explain writes JSON")
}

/// Returns the version of Go and the totals.
fn version_and_totals(page: &Explanation) -> (String, GoTotals) {
    let go = page.go.as_ref().expect("the program is written in Go");
    assert_eq!(go.not_told, None);
    let version = go.version.as_ref().expect("the version is known");
    (version.to_string(), go.totals.expect("the totals are read"))
}

/// Asserts that the totals of an idle program equal its statistics, and returns its version of Go.
fn assert_equals_own_statistics(program: &Path) -> String {
    let mut victim = Victim::start(Command::new(program).arg("idle"));
    let steady = (0..ATTEMPTS).find_map(|_| {
        let before = read_statistics(&mut victim);
        let page = explain_in_file(victim.pid());
        (read_statistics(&mut victim) == before).then_some((before, page))
    });
    let (own, page) = steady.expect("the statistics are the same before and after an explanation");
    victim.finish();
    page.assert_adds_up();
    let (version, totals) = version_and_totals(&page);
    for (name, total) in TOTALS {
        assert_eq!(total(&totals), own[name], "{name}: {totals:#?} {own:#?}");
        assert!(own[name] > 0, "{name}: {own:#?}");
    }
    // The victim frees large objects, and small objects of spans that remain in use.
    assert!(own["HeapAlloc"] > 20 * MIB && own["HeapAlloc"] < own["HeapInuse"], "{own:#?}");
    assert!(own["HeapIdle"] > 8 * MIB, "{own:#?}");
    version
}

/// Adds statistics to `readings` until several collections have ended.
fn read_collections(victim: &mut Victim, readings: &mut Vec<MemStats>) {
    let first = read_statistics(victim)["NumGC"];
    for number in 1.. {
        let reading = read_statistics(victim);
        let collections = reading["NumGC"] - first;
        readings.push(reading);
        if number >= READINGS && collections >= COLLECTIONS {
            return;
        }
    }
}

/// Returns the totals that do not change with each allocation.
fn steady_totals() -> impl Iterator<Item = (&'static str, Total)> {
    TOTALS.into_iter().filter(|(name, _)| !VARYING.contains(name))
}

/// Returns the largest difference of two values of a total that are equal within 1 %.
const fn slack(value: u64) -> u64 {
    value / 100 + SPANS
}

/// Returns true if the steady totals of two readings are equal within 1 %.
fn are_near(before: &MemStats, after: &MemStats) -> bool {
    steady_totals().all(|(name, _)| before[name].abs_diff(after[name]) <= slack(before[name]))
}

/// Asserts that the steady totals equal the readings directly before and after the explanation, within 1 %.
fn assert_steady_totals_equal(totals: &GoTotals, readings: [&MemStats; 2]) {
    for ((name, total), reading) in steady_totals().flat_map(|steady| readings.map(|reading| (steady, reading))) {
        let (ours, own) = (total(totals), reading[name]);
        assert!(ours.abs_diff(own) <= slack(own), "{name} is {ours}, not {own}: {totals:#?}");
    }
}

/// Asserts that the varying totals are in the range of the readings, within 1 %.
fn assert_in_range(totals: &GoTotals, readings: &[MemStats]) {
    let range = |value: &dyn Fn(&MemStats) -> u64, slack: u64| {
        let values = || readings.iter().map(value);
        let (least, most) = values().min().zip(values().max()).expect("there are readings");
        least.saturating_sub(slack)..=most + slack
    };
    let slack = slack(totals.heap_sys_bytes);
    for (name, total) in TOTALS.into_iter().filter(|(name, _)| VARYING.contains(name)) {
        let range = range(&|reading: &MemStats| reading[name], slack);
        assert!(range.contains(&total(totals)), "{name} of {} in {range:?}: {totals:#?}", total(totals));
    }
    // Free blocks in spans that are in use.
    let free = totals.heap_in_use_bytes.saturating_sub(totals.heap_alloc_bytes);
    let range = range(&|reading: &MemStats| reading["HeapInuse"].saturating_sub(reading["HeapAlloc"]), slack);
    assert!(range.contains(&free), "{free} in {range:?}: {totals:#?}");
    assert_eq!(totals.heap_sys_bytes, totals.heap_in_use_bytes + totals.heap_idle_bytes, "{totals:#?}");
    assert!(totals.heap_released_bytes <= totals.heap_idle_bytes, "{totals:#?}");
    let least = readings.iter().map(|reading| reading["HeapAlloc"]).min();
    assert!(least > Some(60 * MIB), "two goroutines have 32 MiB each: {readings:?}");
}

/// Explains a busy program, and compares the totals if the steady totals of its statistics are equal directly before and after the
/// explanation. Returns false otherwise.
fn compare_busy(victim: &mut Victim) -> bool {
    let pid = victim.pid();
    let mut readings = Vec::new();
    read_collections(victim, &mut readings);
    let before = read_statistics(victim);
    let page = thread::scope(|scope| {
        let explaining = scope.spawn(|| explain_in_file(pid));
        while !explaining.is_finished() {
            readings.push(read_statistics(victim));
        }
        explaining.join().expect("the process is explained")
    });
    let after = read_statistics(victim);
    let (_, totals) = version_and_totals(&page);
    if !are_near(&before, &after) {
        return false;
    }
    assert_steady_totals_equal(&totals, [&before, &after]);
    readings.extend([before, after]);
    read_collections(victim, &mut readings);
    assert_in_range(&totals, &readings);
    true
}

/// Asserts that the totals of a busy program equal its statistics, within 1 %.
fn assert_is_near_own_statistics(program: &Path) {
    let mut victim = Victim::start(Command::new(program).arg("busy"));
    let compared = (0..ATTEMPTS).filter(|_| compare_busy(&mut victim)).take(EXPLANATIONS).count();
    assert_eq!(compared, EXPLANATIONS, "the steady totals change during each explanation");
    victim.finish();
}

#[test]
fn totals_of_a_static_program_equal_its_own_statistics() {
    assert_equals_own_statistics(&victim::path("go_totals"));
}

#[test]
fn totals_of_a_stripped_pie_equal_its_own_statistics() {
    assert_equals_own_statistics(&victim::path("go_totals.pie"));
}

#[test]
fn totals_of_a_busy_program_are_near_its_own_statistics() {
    assert_is_near_own_statistics(&victim::path("go_totals"));
}

#[test]
fn totals_of_a_busy_stripped_pie_are_near_its_own_statistics() {
    assert_is_near_own_statistics(&victim::path("go_totals.pie"));
}
