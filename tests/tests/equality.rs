//! Every victim's trace equals its own books: bytes, counts and unknown frees, with nothing lost.

use std::process::Command;

use memtrace_tests::{Books, Report, Trace, Victim, victim};

/// Traces all that the victim does between its barriers.
fn trace(mut victim: Victim) -> (Report, Books) {
    let tracer = Trace::of(&victim).start();
    let books = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    (outcome.report(), books)
}

fn equals(name: &str) {
    let (report, books) = trace(Victim::start(name));
    report.assert_equals(&books);
}

#[test]
fn a_mix_of_all_functions_equals_its_books_and_so_does_each_site() {
    let (report, books) = trace(Victim::start("exact"));
    report.assert_equals(&books);
    assert_eq!(books.sites.len(), 3);
    for site in &books.sites {
        report.assert_site("exact.c", site);
        for stack in report.stacks_at(&site.name) {
            assert!(stack.names().contains(&"main"), "main is not among {:?}", stack.names());
        }
    }
}

#[test]
fn a_mix_of_all_functions_of_musl_equals_its_books_and_so_does_each_site() {
    let (report, books) = trace(Victim::start("exact.musl"));
    report.assert_equals(&books);
    for site in &books.sites {
        report.assert_site("exact.c", site);
    }
}

#[test]
fn every_way_of_a_realloc_equals_its_books() {
    equals("realloc");
}

#[test]
fn every_way_of_a_realloc_of_musl_equals_its_books() {
    equals("realloc.musl");
}

#[test]
fn aligned_blocks_and_failing_calls_equal_their_books() {
    equals("aligned");
}

#[test]
fn aligned_blocks_and_failing_calls_of_musl_equal_their_books() {
    equals("aligned.musl");
}

/// When a thread ends, glibc frees its cache (malloc/malloc.c, `tcache_thread_shutdown`): the blocks in it, which the
/// victim has freed before, and the cache itself. With caches of no blocks that is one free of an unknown block a thread.
#[test]
fn frees_by_other_threads_and_the_end_of_threads_equal_their_books() {
    const THREADS: u64 = 8;
    let tunables = "glibc.malloc.tcache_count=0";
    let (report, mut books) = trace(Victim::run(Command::new(victim::path("threads")).env("GLIBC_TUNABLES", tunables)));
    books.unmatched_frees += THREADS;
    report.assert_equals(&books);
}

#[test]
fn what_a_thread_had_cached_changes_nothing_but_the_frees_of_unknown_blocks() {
    let (report, mut books) = trace(Victim::start("threads"));
    assert!(report.unmatched_frees > books.unmatched_frees, "{}", report.unmatched_frees);
    books.unmatched_frees = report.unmatched_frees;
    report.assert_equals(&books);
}

#[test]
fn frees_by_other_threads_of_musl_equal_their_books() {
    equals("threads.musl");
}

#[test]
fn the_heap_of_a_forked_child_is_not_its_parents() {
    equals("fork");
}

#[test]
fn after_exec_the_old_heap_is_discarded_and_the_new_one_has_books_of_its_own() {
    let mut victim = Victim::start("exec");
    let tracer = Trace::of(&victim).start();
    let mut first = victim.work();
    let second = victim.books();
    let outcome = tracer.stop();
    victim.finish();

    let report = outcome.report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let [before, after] = &report.processes[..] else { panic!("not two programs: {:#?}", report.processes) };
    assert_eq!((before.ended.as_deref(), after.ended.as_deref()), (Some("exec"), None));
    after.assert_equals(&second);
    assert_eq!(before.discarded.bytes, first.numbers.live_bytes);
    assert_eq!(before.discarded.count, first.numbers.live_count);
    first.numbers.live_bytes = 0;
    first.numbers.live_count = 0;
    before.assert_equals(&first);
    for (name, books) in [("before_exec", &first), ("after_exec", &second)] {
        let count: u64 = report.stacks_at(name).map(|stack| stack.numbers.alloc_count).sum();
        assert_eq!(count, books.numbers.alloc_count, "{name}");
    }
}

#[test]
fn vectors_boxes_strings_and_maps_in_rust_equal_their_books() {
    equals("victim-rust-vec");
}

#[test]
fn operator_new_counts_once() {
    equals("widgets");
}
