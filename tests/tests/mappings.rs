//! What is mapped, by the stack that mapped it, equals what victims know, to the page.

use memtrace_tests::pages::Said;
use memtrace_tests::{Report, Trace, Victim};

fn trace(way: &str, options: &[&str]) -> (Report, Said) {
    let mut victim = Victim::start_with("pages", &[way]);
    let tracer = Trace::of(&victim).options(&["--events", "map"]).options(options).start();
    let said = Said::hear(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    (report, said)
}

/// Mapped pages by function are as the victim says.
fn equals(way: &str, options: &[&str]) {
    let (report, said) = trace(way, options);
    said.assert_pages(&report, |pages| pages.mapped, |stack| stack.numbers.live_bytes);
}

#[test]
fn of_a_reserve_all_and_apart_from_it_what_is_touched() {
    let (report, said) = trace("reserve", &[]);
    said.assert_pages(&report, |pages| pages.mapped, |stack| stack.numbers.live_bytes);
    said.assert_pages(&report, |pages| pages.resident, |stack| stack.resident_bytes.expect("it is told of mappings"));
}

#[test]
fn what_is_left_around_a_hole() {
    equals("hole", &[]);
}

#[test]
fn what_was_given_back_and_is_still_mapped() {
    equals("back", &[]);
}

#[test]
fn what_was_moved_and_has_grown_and_shrunk() {
    equals("moves", &[]);
}

#[test]
fn files_shared_and_private() {
    equals("files", &[]);
}

#[test]
fn what_the_break_has_grown_and_shrunk_by() {
    equals("brk", &[]);
}

#[test]
fn a_copys_mappings_are_its_parents() {
    equals("forks", &["--children"]);
}

#[test]
fn what_an_allocator_maps_is_marked() {
    let (report, _) = trace("reserve", &[]);
    let own = |stack: &memtrace_tests::report::Stack| stack.by_allocator == Some(true);
    assert!(report.stacks.iter().filter(|stack| stack.names().contains(&"reserve_and_touch")).all(|stack| !own(stack)));
    let mut victim = Victim::start("exact");
    let tracer = Trace::of(&victim).options(&["--events", "heap,map"]).start();
    let books = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let [heap, maps] = ["heap", "map"].map(|events| outcome.report_of(events));
    heap.assert_equals(&books);
    let mapped: Vec<_> = maps.stacks.iter().filter(|stack| stack.numbers.alloc_count > 0).collect();
    assert!(!mapped.is_empty() && mapped.iter().all(|stack| own(stack)), "{mapped:#?}");
}
