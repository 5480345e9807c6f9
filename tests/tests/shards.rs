//! How many shards there are changes no number.

use std::collections::BTreeMap;

use memtrace_tests::{Numbers, Report, Trace, victim};

/// The six numbers by all that names a stack.
fn by_stack(report: &Report) -> BTreeMap<String, Numbers> {
    let mut stacks = BTreeMap::new();
    for stack in &report.stacks {
        let name = format!("{} {} {:?}", stack.process, stack.end, stack.frames);
        assert!(stacks.insert(name, stack.numbers).is_none(), "a stack is there twice: {stack:?}");
    }
    stacks
}

/// The reports of the same work of a victim, by one shard and by four; both equal its books.
fn by_one_and_by_four(victim: &str) -> [Report; 2] {
    let mut victim = victim::start(victim);
    let traces = ["1", "4"].map(|shards| Trace::of(&victim).options(&["--shards", shards]).start());
    let books = victim.work();
    let reports = traces.map(|trace| trace.stop().report());
    victim.finish();
    for report in &reports {
        report.assert_equals(&books);
    }
    reports
}

#[test]
fn one_and_four_shards_report_one_process_alike() {
    let [one, four] = by_one_and_by_four("exact");
    assert!(one.stacks.len() > 5);
    assert_eq!(by_stack(&one), by_stack(&four));
    assert_eq!(one.stack_quality, four.stack_quality);
}

/// The six numbers by the frame that called the allocator.
fn by_leaf(report: &Report) -> BTreeMap<String, Numbers> {
    let mut leaves = BTreeMap::<_, Numbers>::new();
    for stack in &report.stacks {
        *leaves.entry(format!("{} {:?}", stack.process, stack.leaf())).or_default() += stack.numbers;
    }
    leaves
}

/// Each trace walks its own stacks, and one of them may find the mappings locked by another thread where the other does
/// not; so only the leaf is the same for certain.
#[test]
fn one_and_four_shards_report_many_threads_alike() {
    let [one, four] = by_one_and_by_four("threads.musl");
    assert_eq!(by_leaf(&one), by_leaf(&four));
}
