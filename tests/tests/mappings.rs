//! Tests that mapped pages match the victim exactly, by the stack that mapped them.

use memtrace_tests::page_counts::PageCounts;
use memtrace_tests::{Report, Trace, victim};

fn trace(scenario: &str, options: &[&str]) -> (Report, PageCounts) {
    let mut victim = victim::start_with("pages", &[scenario]);
    let tracer = Trace::victim(&victim).options(&["--events", "map"]).options(options).start();
    let expected = PageCounts::read_from(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    (report, expected)
}

/// Asserts that mapped pages by function match the victim.
fn assert_mapped_pages(scenario: &str, options: &[&str]) {
    let (report, expected) = trace(scenario, options);
    expected.assert_pages(&report, |pages| pages.mapped, |stack| stack.totals.live_bytes);
}

#[test]
fn reservation_has_mapped_and_resident_bytes() {
    let (report, expected) = trace("reserve", &[]);
    expected.assert_pages(&report, |pages| pages.mapped, |stack| stack.totals.live_bytes);
    expected.assert_pages(
        &report,
        |pages| pages.resident,
        |stack| stack.resident_bytes.expect("mapping stacks have it"),
    );
}

#[test]
fn munmap_of_a_middle_part_leaves_the_rest_mapped() {
    assert_mapped_pages("hole", &[]);
}

#[test]
fn madv_dontneed_keeps_pages_mapped() {
    assert_mapped_pages("back", &[]);
}

#[test]
fn mremap_moves_grows_and_shrinks_a_mapping() {
    assert_mapped_pages("moves", &[]);
}

#[test]
fn shared_and_private_file_mappings_are_counted() {
    assert_mapped_pages("files", &[]);
}

#[test]
fn brk_growth_and_shrinkage_are_counted() {
    assert_mapped_pages("brk", &[]);
}

#[test]
fn forked_child_inherits_mappings() {
    assert_mapped_pages("forks", &["--children"]);
}

#[test]
fn mappings_made_by_the_allocator_are_marked() {
    let (report, _) = trace("reserve", &[]);
    let own = |stack: &memtrace_tests::report::Stack| stack.by_allocator == Some(true);
    assert!(report.stacks.iter().filter(|stack| stack.names().contains(&"reserve_and_touch")).all(|stack| !own(stack)));
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).options(&["--events", "heap,map"]).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let [heap, maps] = ["heap", "map"].map(|events| outcome.report_for(events));
    heap.assert_equals(&expected);
    let mapped: Vec<_> = maps.stacks.iter().filter(|stack| stack.totals.alloc_count > 0).collect();
    assert!(!mapped.is_empty() && mapped.iter().all(|stack| own(stack)), "{mapped:#?}");
}
