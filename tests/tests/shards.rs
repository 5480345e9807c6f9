//! How many shards there are changes no number.

use std::collections::BTreeMap;

use memtrace_tests::{Numbers, Report, Trace, Victim};

/// The six numbers by all that names a stack.
fn by_stack(report: &Report) -> BTreeMap<String, Numbers> {
    let mut stacks = BTreeMap::new();
    for stack in &report.stacks {
        let name = format!("{} {} {:?}", stack.process, stack.end, stack.frames);
        assert!(stacks.insert(name, stack.numbers).is_none(), "a stack is there twice: {stack:?}");
    }
    stacks
}

#[test]
fn one_shard_and_four_give_the_same_report_of_one_process() {
    let mut victim = Victim::start("exact");
    let one = Trace::of(&victim).options(&["--shards", "1"]).start();
    let four = Trace::of(&victim).options(&["--shards", "4"]).start();
    let books = victim.work();
    let one = one.stop().report();
    let four = four.stop().report();
    victim.finish();
    one.assert_equals(&books);
    four.assert_equals(&books);
    assert!(one.stacks.len() > 5);
    assert_eq!(by_stack(&one), by_stack(&four));
    assert_eq!(one.stack_quality, four.stack_quality);
}

#[test]
fn one_shard_and_four_give_the_same_report_of_many_threads() {
    let mut victim = Victim::start("threads.musl");
    let one = Trace::of(&victim).options(&["--shards", "1"]).start();
    let four = Trace::of(&victim).options(&["--shards", "4"]).start();
    let books = victim.work();
    let one = one.stop().report();
    let four = four.stop().report();
    victim.finish();
    one.assert_equals(&books);
    four.assert_equals(&books);
    assert_eq!(by_stack(&one), by_stack(&four));
}
