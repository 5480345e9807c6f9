//! The trace of each victim matches its own totals: bytes, counts and unmatched frees, without losses.

use std::process::Command;
use std::sync::LazyLock;

use memtrace_tests::{Report, Trace, TracedTogether, Victim, VictimTotals, victim};

/// Traces the victim between its two barriers.
fn trace(mut victim: Victim) -> (Report, VictimTotals) {
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    (outcome.report(), expected)
}

/// Victims without children. Only the totals of the process are compared.
static TOGETHER: LazyLock<TracedTogether> = LazyLock::new(|| {
    let names = ["realloc", "realloc.musl", "aligned", "aligned.musl", "threads.musl", "victim-rust-vec", "widgets"];
    TracedTogether::victims(&names, &[], &[])
});

fn assert_matches(name: &str) {
    let (report, expected) = trace(victim::start(name));
    report.assert_equals(&expected);
}

#[test]
fn mixed_calls_match_in_total_and_per_call_site() {
    let (report, expected) = trace(victim::start("exact"));
    report.assert_equals(&expected);
    assert_eq!(expected.sites.len(), 3);
    for site in &expected.sites {
        report.assert_site("exact.c", site);
        for stack in report.stacks_with_leaf(&site.name) {
            assert!(stack.names().contains(&"main"), "main is not among {:?}", stack.names());
        }
    }
}

#[test]
fn mixed_calls_on_musl_match_in_total_and_per_call_site() {
    let (report, expected) = trace(victim::start("exact.musl"));
    report.assert_equals(&expected);
    for site in &expected.sites {
        report.assert_site("exact.c", site);
    }
}

#[test]
fn every_realloc_outcome_matches() {
    TOGETHER.assert_equals("realloc");
}

#[test]
fn every_realloc_outcome_on_musl_matches() {
    TOGETHER.assert_equals("realloc.musl");
}

#[test]
fn aligned_blocks_and_failed_calls_match() {
    TOGETHER.assert_equals("aligned");
}

#[test]
fn aligned_blocks_and_failed_calls_on_musl_match() {
    TOGETHER.assert_equals("aligned.musl");
}

/// At thread exit, glibc frees the blocks in the tcache, which the victim has already freed, and the tcache itself
/// (malloc/malloc.c, `tcache_thread_shutdown`). With an empty tcache, this is one repeated free per thread.
#[test]
fn cross_thread_frees_and_thread_exits_match() {
    const THREADS: u64 = 8;
    let tunables = "glibc.malloc.tcache_count=0";
    let (report, expected) =
        trace(Victim::start(Command::new(victim::path("threads")).env("GLIBC_TUNABLES", tunables)));
    report.assert_equals(&expected);
    assert_eq!(report.repeated_frees, THREADS);
}

/// The test in `libc_versions` compares the number of repeated frees, which depends on the version
/// of glibc.
#[test]
fn tcache_flush_at_thread_exit_adds_only_repeated_frees() {
    let (report, expected) = trace(victim::start("threads"));
    report.assert_equals(&expected);
    assert!(report.repeated_frees > 8, "{}", report.repeated_frees);
}

#[test]
fn cross_thread_frees_on_musl_match() {
    TOGETHER.assert_equals("threads.musl");
}

/// Blocks that signal handlers allocate while they interrupt an allocator call are recorded. Nested calls are not
/// recorded.
#[test]
fn allocations_of_signal_handlers_that_interrupt_malloc_match() {
    assert_matches("interrupted");
}

#[test]
fn heap_of_a_forked_child_is_not_counted_for_its_parent() {
    assert_matches("fork");
}

#[test]
fn exec_discards_the_old_heap_and_starts_new_totals() {
    let mut victim = victim::start("exec");
    let tracer = Trace::victim(&victim).start();
    let mut first = victim.work();
    let second = victim.read_totals();
    let outcome = tracer.stop();
    victim.finish();

    let report = outcome.report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let [before, after] = &report.processes[..] else { panic!("not two entries: {:#?}", report.processes) };
    assert_eq!((before.ended.as_deref(), after.ended.as_deref()), (Some("exec"), None));
    after.assert_equals(&second);
    assert_eq!(before.discarded.bytes, first.totals.live_bytes);
    assert_eq!(before.discarded.count, first.totals.live_count);
    first.totals.live_bytes = 0;
    first.totals.live_count = 0;
    before.assert_equals(&first);
    for (name, expected) in [("before_exec", &first), ("after_exec", &second)] {
        let count: u64 = report.stacks_with_leaf(name).map(|stack| stack.totals.alloc_count).sum();
        assert_eq!(count, expected.totals.alloc_count, "{name}");
    }
}

#[test]
fn rust_vectors_boxes_strings_and_maps_match() {
    TOGETHER.assert_equals("victim-rust-vec");
}

#[test]
fn operator_new_counts_once() {
    TOGETHER.assert_equals("widgets");
}
