//! Tests of stack copies: the walk in user space finds the same stack as the BPF programs.

use super::*;
use crate::kernel::stack_copies::{CodeLookup, FinishedWalk, StackCopy};

/// Calls `function` `calls` times without a table, and returns a stack copy for each call.
fn copies_of(trace: &mut Trace, function: Function, calls: usize) -> Vec<StackCopy> {
    let mut reader = trace.kernel.take_stack_copies().unwrap();
    let ids: Vec<_> = (0..calls).map(|_| trace.run(function, 30).0).collect();
    let mut copies = Vec::new();
    reader.drain(usize::MAX, |copy| copies.push(copy));
    assert_eq!(copies.iter().map(StackCopy::id).collect::<Vec<_>>(), ids, "each stack has its own copy");
    copies
}

#[test]
fn privileged_walks_in_copies_find_the_stacks_of_bpf() {
    let _lock = lock();
    for function in [chain::first, chain::deep] {
        let mut trace = Trace::of_chain(128);
        let copies = copies_of(&mut trace, function, 3);
        for copy in &copies {
            let walk = copy.finish_walk(trace.kernel.unwind_maps(), |_| CodeLookup::Pending, |_| None);
            assert_eq!(walk, FinishedWalk::Pending);
            let walk = copy.finish_walk(trace.kernel.unwind_maps(), |_| CodeLookup::Unknown, |_| None);
            assert_eq!(walk, FinishedWalk::Unknown);
        }
        trace.write_table(&chain_rows());
        trace.kernel.unwind_maps().set_object(own_object(), chain_table()).unwrap();
        let (id, stacks) = trace.run(function, 30);
        let found = &stacks[&id];
        assert_eq!(found.end, StackEnd::Complete);
        for copy in &copies {
            let code = CodeLookup::Mapping(chain_mapping());
            let walk = copy.finish_walk(trace.kernel.unwind_maps(), |_| code, |_| None);
            let expected = Stack { taken: copy.taken, ..found.clone() };
            assert_eq!(walk, FinishedWalk::Stack(id, Box::new(expected)));
        }
    }
}

#[test]
fn privileged_stacks_are_copied_at_pending_pages() {
    let _lock = lock();
    let mut trace = Trace::of_chain(128);
    trace.kernel.unwind_maps().set_pages_pending(0..1).unwrap();
    trace.kernel.unwind_maps().set_object(own_object(), chain_table()).unwrap();
    let copies = copies_of(&mut trace, chain::first, 3);
    let code = CodeLookup::Mapping(chain_mapping());
    for copy in &copies {
        let address = AbsAddr(here!(chain_third_return) - 1);
        assert_eq!(copy.cut_at(), Some(address));
        let walk = copy.finish_walk(trace.kernel.unwind_maps(), |_| code, |_| None);
        assert_eq!(walk, FinishedWalk::PendingPage(address));
    }
    trace.write_table(&chain_rows());
    let (id, stacks) = trace.run(chain::first, 30);
    assert_eq!(stacks[&id].end, StackEnd::Complete, "the programs see the page at once");
    for copy in &copies {
        let walk = copy.finish_walk(trace.kernel.unwind_maps(), |_| code, |_| None);
        let expected = Stack { taken: copy.taken, ..stacks[&id].clone() };
        assert_eq!(walk, FinishedWalk::Stack(id, Box::new(expected)));
    }
}

#[test]
fn privileged_pages_that_stay_pending_are_cleared() {
    let _lock = lock();
    let mut trace = Trace::of_chain(128);
    let maps = trace.kernel.unwind_maps();
    maps.set_pages_pending(0..3).unwrap();
    maps.write_pages(1, &[page(1, 2)]).unwrap();
    maps.clear_pending_pages(0..3).unwrap();
    assert_eq!([0, 1, 2].map(|number| maps.page(number)), [0, page(1, 2), 0].map(Some));
}
