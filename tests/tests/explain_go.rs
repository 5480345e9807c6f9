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

/// Maximum number of attempts to explain an idle program. Its runtime frees buffers of the collector, and returns idle memory to
/// the kernel, after the last collection.
const ATTEMPTS: u32 = 100;

/// Number of explanations of a busy program.
const EXPLANATIONS: u32 = 3;

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

/// Asserts that each total is in the range of the readings, within 1 %.
fn assert_in_range(totals: &GoTotals, readings: &[MemStats]) {
    let values = |name: &str| -> Vec<u64> { readings.iter().map(|reading| reading[name]).collect() };
    let least = |name: &str| values(name).into_iter().min().expect("there are readings");
    let most = |name: &str| values(name).into_iter().max().expect("there are readings");
    for (name, total) in TOTALS {
        // Idle memory is the small difference of large totals.
        let whole = if matches!(name, "HeapIdle" | "HeapReleased") { "HeapSys" } else { name };
        let slack = most(whole) / 100 + SPANS;
        let range = least(name).saturating_sub(slack)..=most(name) + slack;
        assert!(range.contains(&total(totals)), "{name} of {} in {range:?}: {totals:#?}", total(totals));
    }
    assert_eq!(totals.heap_sys_bytes, totals.heap_in_use_bytes + totals.heap_idle_bytes, "{totals:#?}");
    assert!(totals.heap_released_bytes <= totals.heap_idle_bytes, "{totals:#?}");
    assert!(least("HeapAlloc") > 60 * MIB, "two goroutines have 32 MiB each: {readings:?}");
}

/// Asserts that the totals of a busy program are in the range of its statistics before, during and after the explanation.
fn assert_is_near_own_statistics(program: &Path) {
    let mut victim = Victim::start(Command::new(program).arg("busy"));
    let pid = victim.pid();
    for _ in 0..EXPLANATIONS {
        let mut readings = Vec::new();
        read_collections(&mut victim, &mut readings);
        let page = thread::scope(|scope| {
            let explaining = scope.spawn(|| explain_in_file(pid));
            while !explaining.is_finished() {
                readings.push(read_statistics(&mut victim));
            }
            explaining.join().expect("the process is explained")
        });
        read_collections(&mut victim, &mut readings);
        assert_in_range(&version_and_totals(&page).1, &readings);
    }
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
