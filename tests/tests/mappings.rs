//! Mapped pages by the stack that mapped them match the victim exactly.

use memtrace_tests::page_counts::PageCounts;
use memtrace_tests::{Report, Trace, victim};

fn trace(way: &str, options: &[&str]) -> (Report, PageCounts) {
    let mut victim = victim::start_with("pages", &[way]);
    let tracer = Trace::victim(&victim).options(&["--events", "map"]).options(options).start();
    let said = PageCounts::read_from(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    (report, said)
}

/// Asserts that mapped pages by function match the victim.
fn equals(way: &str, options: &[&str]) {
    let (report, said) = trace(way, options);
    said.assert_pages(&report, |pages| pages.mapped, |stack| stack.totals.live_bytes);
}

#[test]
fn reservation_has_mapped_and_resident_bytes() {
    let (report, said) = trace("reserve", &[]);
    said.assert_pages(&report, |pages| pages.mapped, |stack| stack.totals.live_bytes);
    said.assert_pages(&report, |pages| pages.resident, |stack| stack.resident_bytes.expect("mapping stacks have it"));
}

#[test]
fn munmap_of_a_middle_part_leaves_the_rest_mapped() {
    equals("hole", &[]);
}

#[test]
fn madv_dontneed_keeps_pages_mapped() {
    equals("back", &[]);
}

#[test]
fn mremap_moves_grows_and_shrinks_a_mapping() {
    equals("moves", &[]);
}

#[test]
fn shared_and_private_file_mappings_are_counted() {
    equals("files", &[]);
}

#[test]
fn brk_growth_and_shrinkage_are_counted() {
    equals("brk", &[]);
}

#[test]
fn forked_child_inherits_mappings() {
    equals("forks", &["--children"]);
}

#[test]
fn mappings_made_by_the_allocator_are_marked() {
    let (report, _) = trace("reserve", &[]);
    let own = |stack: &memtrace_tests::report::Stack| stack.by_allocator == Some(true);
    assert!(report.stacks.iter().filter(|stack| stack.names().contains(&"reserve_and_touch")).all(|stack| !own(stack)));
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).options(&["--events", "heap,map"]).start();
    let books = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let [heap, maps] = ["heap", "map"].map(|events| outcome.report_for(events));
    heap.assert_equals(&books);
    let mapped: Vec<_> = maps.stacks.iter().filter(|stack| stack.totals.alloc_count > 0).collect();
    assert!(!mapped.is_empty() && mapped.iter().all(|stack| own(stack)), "{mapped:#?}");
}
