//! Resident pages by the stack of their first touch match the victim and the kernel exactly.

mod alone;
mod long;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use memtrace_tests::page_counts::{PAGE, PageCounts, rss};
use memtrace_tests::process::page_faults;
use memtrace_tests::swap::Swap;
use memtrace_tests::{Report, Scratch, Trace, victim};

/// Folder of a kernel with kprobes.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// Traces one scenario of the victim. Returns the report, the victim's expected pages, and the RSS that the kernel
/// reports.
fn trace(scenario: &str, options: &[&str]) -> (Report, PageCounts, u64) {
    let mut victim = victim::start_with("pages", &[scenario]);
    let tracer = Trace::victim(&victim).options(&["--events", "fault"]).options(options).start();
    let expected = PageCounts::read_from(&mut victim);
    wait_until_idle(expected.pid);
    let resident = rss(expected.pid);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    (report, expected, resident)
}

/// Waits until the process blocks on standard input and no longer touches memory.
fn wait_until_idle(pid: u32) {
    memtrace_tests::process::wait_until_reading_stdin(pid);
}

/// Asserts that resident pages match the victim by function and the kernel in total, and that all resident pages are
/// explained.
fn assert_resident_pages(scenario: &str, options: &[&str]) {
    let (report, expected, resident) = trace(scenario, options);
    expected.assert_pages(&report, |pages| pages.resident, |stack| stack.totals.live_bytes);
    let process = report.processes.iter().find(|process| process.pid == expected.pid).expect("the process is reported");
    let sum = |of: fn(&memtrace_tests::report::ResidentMemory) -> u64| {
        process.resident.iter().flatten().map(|(_, memory)| of(memory)).sum::<u64>()
    };
    assert_eq!(sum(|kind| kind.total_bytes), resident, "{:#?}", process.resident);
    let explained = sum(|kind| kind.with_stack_bytes) + sum(|kind| kind.before_bytes);
    assert_eq!(explained, resident, "{:#?}", process.resident);
    assert_eq!(process.totals.live_bytes, sum(|kind| kind.with_stack_bytes));
}

/// Returns true if huge pages were recorded at their faults. Otherwise, the kernel must have no kprobes, and the report has
/// a note.
fn has_records_of_huge_pages(report: &Report) -> bool {
    let has_note = report.notes.iter().any(|note| note.starts_with("huge pages were not counted at their faults"));
    assert!(!has_note || !Path::new(KPROBES).exists(), "{:?}", report.notes);
    !has_note
}

#[test]
fn only_touched_pages_of_a_reservation_are_resident() {
    assert_resident_pages("reserve", &[]);
}

#[test]
fn fault_in_mid_function_has_a_complete_stack() {
    let (report, expected, _) = trace("reserve", &[]);
    let stacks = expected.stacks(&report, "reserve_and_touch");
    let largest = stacks.iter().max_by_key(|stack| stack.totals.live_bytes).expect("the victim touched pages");
    assert!(largest.names().ends_with(&["main", "reserve_and_touch", "write_to"]), "{:?}", largest.names());
    assert_eq!((largest.names()[0], &*largest.end), ("_start", "complete"));
}

/// During a fault, BPF can look up only one VMA, and each of these stacks crosses two. Processes that start while
/// unwind tables are still being built are left out.
#[test]
fn sampled_short_lived_processes_have_complete_stacks() {
    const RUNS: usize = 200;
    let script = format!("for run in $(seq {RUNS}); do {}; done >/dev/null", victim::path("short_lived").display());
    let outcome = Trace::command(["sh", "-c", &script]).options(&["--events", "fault", "--sample", "16"]).run();
    let report = outcome.report();
    let mut ends: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for stack in report.stacks.iter().filter(|stack| stack.names().contains(&"main")) {
        ends.entry(stack.pid).or_default().insert(&stack.end);
    }
    let pending = report.stacks.iter().filter(|stack| stack.end == "table_pending").map(|stack| stack.pid);
    for pid in pending {
        ends.remove(&pid);
    }
    assert!(ends.len() > RUNS / 4, "{ends:?}");
    // The map of executable VMAs is bounded, so an entry may be evicted before it is used. Without prefetching of VMAs,
    // one stack in four would be cut.
    let cut = ends.values().filter(|ends| **ends != BTreeSet::from(["complete"])).count();
    assert!(cut <= ends.len() / 20, "{ends:?}");
}

#[test]
fn zero_pages_are_not_resident() {
    assert_resident_pages("reads", &[]);
}

#[test]
fn huge_pages_count_with_their_full_size() {
    assert_resident_pages("huge_written", &[]);
}

#[test]
fn huge_zero_pages_are_not_resident() {
    assert_resident_pages("huge_read", &[]);
}

#[test]
fn the_rest_of_a_split_huge_page_keeps_its_stack() {
    let (report, ..) = trace("huge_split", &[]);
    if has_records_of_huge_pages(&report) {
        assert_resident_pages("huge_split", &[]);
    }
}

/// If another thread has mapped the huge page first, a thread maps nothing, but touches a page.
#[test]
fn threads_that_race_for_a_huge_page_count_it_once() {
    const TOUCHES: u64 = 8 * 16;
    // The threads also touch pages of their stacks.
    const OTHERS: u64 = 64;
    let (report, expected, _) = trace("huge_race", &[]);
    let actual = expected.functions["touch_shared"].resident * PAGE;
    let stacks = expected.stacks(&report, "touch_shared");
    let live: u64 = stacks.iter().map(|stack| stack.totals.live_bytes).sum();
    let touched: u64 = stacks.iter().map(|stack| stack.totals.alloc_bytes).sum();
    assert!((actual..=actual + OTHERS * PAGE).contains(&live), "{live} of {actual}");
    assert!((live..=live + TOUCHES * PAGE).contains(&touched), "{touched} of {actual}");
}

#[test]
fn munmap_of_a_middle_part_leaves_the_rest_resident() {
    assert_resident_pages("hole", &[]);
}

#[test]
fn madv_dontneed_removes_resident_pages() {
    assert_resident_pages("back", &[]);
}

#[test]
fn mremap_keeps_the_stack_of_the_first_touch() {
    assert_resident_pages("moves", &[]);
}

#[test]
fn file_pages_include_fault_around() {
    assert_resident_pages("files", &[]);
}

#[test]
fn pages_below_the_lowered_break_stay_resident() {
    assert_resident_pages("brk", &[]);
}

#[test]
fn forked_child_has_own_and_inherited_pages() {
    assert_resident_pages("forks", &["--children"]);
}

/// If the stack walk reads a page that is not resident, the kernel handles no fault, and the read fails.
#[test]
fn reads_of_the_stack_walk_are_no_faults() {
    assert_resident_pages("context", &[]);
    assert_resident_pages("kernel_context", &[]);
}

#[test]
fn pages_filled_by_read_syscalls_are_resident() {
    assert_resident_pages("kernel", &[]);
}

/// Asserts that resident pages match the victim, and that major faults match the kernel. Returns the number of major
/// faults.
fn assert_major_faults(scenario: &str) -> u64 {
    let mut victim = victim::start_with("pages", &[scenario]);
    let [_, before] = page_faults(victim.pid());
    let tracer = Trace::victim(&victim).options(&["--events", "fault"]).start();
    let expected = PageCounts::read_from(&mut victim);
    wait_until_idle(expected.pid);
    let [_, after] = page_faults(expected.pid);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    expected.assert_pages(&report, |pages| pages.resident, |stack| stack.totals.live_bytes);
    let major_faults = after - before;
    assert_eq!(report.stacks.iter().filter_map(|stack| stack.major_faults).sum::<u64>(), major_faults);
    major_faults
}

#[test]
fn major_faults_match_the_kernel() {
    assert!(assert_major_faults("disk") >= 40);
}

#[test]
fn sampled_estimate_has_an_error_and_the_total_is_exact() {
    let (report, expected, resident) = trace("by_pages", &["--sample", "16"]);
    let stacks = expected.stacks(&report, "reserve_and_touch");
    let estimate: u64 = stacks.iter().map(|stack| stack.totals.live_bytes).sum();
    let error = stacks
        .iter()
        .filter_map(|stack| stack.content.totals.live_error_bytes)
        .max()
        .expect("the estimate has an error");
    let actual = expected.functions["reserve_and_touch"].resident * PAGE;
    // A sixteenth of 16,384 pages is sampled. The error of 1.96 standard deviations is about a sixteenth of them. An
    // estimate that is off by twice the error is not chance.
    assert!(estimate.abs_diff(actual) <= 2 * error, "{estimate} ± {error} for {actual}");
    assert!((actual / 25..actual / 10).contains(&error), "{error} of {actual}");
    let process = &report.processes[0];
    assert_eq!(process.resident.iter().flatten().map(|(_, kind)| kind.total_bytes).sum::<u64>(), resident);
}

/// Two thirds of the memory are in huge pages, which have no error.
#[test]
fn huge_pages_of_a_sample_are_counted() {
    let (report, expected, _) = trace("huge_and_small", &["--sample", "64"]);
    let stacks = expected.stacks(&report, "write_regions");
    let [stack] = stacks.as_slice() else { panic!("one stack touches all regions: {stacks:#?}") };
    let actual = expected.functions["write_regions"].resident * PAGE;
    let error = stack.content.totals.live_error_bytes.expect("the estimate has an error");
    let estimate = stack.totals.live_bytes;
    if has_records_of_huge_pages(&report) {
        // About 64 of the 4,096 small pages are sampled, so the error is a quarter of them.
        assert!((1 << 20..8 << 20).contains(&error), "{error} of {actual}");
        assert!(estimate.abs_diff(actual) <= 2 * error, "{estimate} ± {error} for {actual}");
    }
    let process = report.processes.iter().find(|process| process.pid == expected.pid).expect("the process is reported");
    for (kind, memory) in process.resident.iter().flatten() {
        assert!(memory.with_stack_bytes + memory.before_bytes <= memory.total_bytes, "{kind:?}: {memory:?}");
    }
}

#[test]
fn by_memory_separates_file_and_anonymous_pages() {
    let (report, expected, _) = trace("files", &["--by", "memory"]);
    let live = |function: &str, kind: &str| {
        let stacks = expected.stacks(&report, function).into_iter();
        stacks.filter(|stack| stack.memory.as_deref() == Some(kind)).map(|stack| stack.totals.live_bytes).sum::<u64>()
    };
    for function in ["shared_file", "private_file"] {
        assert_eq!(live(function, "file"), expected.functions[function].resident * 4096);
        assert_eq!(live(function, "anonymous"), 0);
    }
}
