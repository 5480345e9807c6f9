//! Reports do not depend on the number of shards.

use std::collections::BTreeMap;

use memtrace_tests::{Report, Totals, Trace, victim};

/// Returns the totals by stack.
fn by_stack(report: &Report) -> BTreeMap<String, Totals> {
    let mut stacks = BTreeMap::new();
    for stack in &report.stacks {
        let name = format!("{} {} {:?}", stack.process, stack.end, stack.frames);
        assert!(stacks.insert(name, stack.totals).is_none(), "a stack is there twice: {stack:?}");
    }
    stacks
}

/// Traces a victim with one shard and with four at the same time, and asserts that both traces match the victim's
/// totals.
fn by_one_and_by_four(victim: &str) -> [Report; 2] {
    let mut victim = victim::start(victim);
    let traces = ["1", "4"].map(|shards| Trace::victim(&victim).options(&["--shards", shards]).start());
    let expected = victim.work();
    let reports = traces.map(|trace| trace.stop().report());
    victim.finish();
    for report in &reports {
        report.assert_equals(&expected);
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

/// Returns the totals by leaf frame.
fn by_leaf(report: &Report) -> BTreeMap<String, Totals> {
    let mut leaves = BTreeMap::<_, Totals>::new();
    for stack in &report.stacks {
        *leaves.entry(format!("{} {:?}", stack.process, stack.leaf())).or_default() += stack.totals;
    }
    leaves
}

/// Only leaves are compared: each trace walks its own stacks, and a walk is cut if the mmap lock of the process is
/// contended at that moment.
#[test]
fn one_and_four_shards_report_many_threads_alike() {
    let [one, four] = by_one_and_by_four("threads.musl");
    assert_eq!(by_leaf(&one), by_leaf(&four));
}
