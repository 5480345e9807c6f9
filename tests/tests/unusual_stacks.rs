//! Stacks through signal handlers, longjmp, exceptions, preempted threads, forks, JIT code and code without tables. The
//! victims are built without frame pointers.

mod long;

use std::collections::BTreeMap;

use memtrace_tests::{Report, Traced, victim};

/// Call chains of the victim's functions, from root to leaf, with their number of allocations.
type Chains<'names> = BTreeMap<Vec<&'names str>, u64>;

fn below_main<'names>(chains: impl IntoIterator<Item = (Vec<&'names str>, u64)>) -> Chains<'names> {
    chains.into_iter().map(|(chain, count)| ([&["_start", "main"], &chain[..]].concat(), count)).collect()
}

/// Traces the victim and asserts the functions of its stacks.
fn has_chains(name: &str, expected: &Chains<'_>) -> Report {
    let Traced { report, expected: totals } = Traced::victim(name);
    report.assert_equals(&totals);
    assert_eq!(&report.chains(&victim::path(name)), expected);
    report
}

/// Traces the victim, and asserts that each stack equals the stack of libgcc's unwinder. Returns the number of stacks
/// that were compared only up to JIT code.
fn equals_the_oracle(name: &str) -> u64 {
    let (Traced { report, expected: totals }, comparison) = Traced::with_oracle(name);
    report.assert_equals(&totals);
    assert_eq!((comparison.sampled, comparison.seen), (report.totals.alloc_count, report.totals.alloc_count));
    assert_eq!(comparison.equal, comparison.sampled, "{}", comparison.differences.join("\n"));
    comparison.to_generated
}

#[test]
fn signal_handler_stacks_continue_in_interrupted_code() {
    let from = |interrupted, handler| (vec!["all", interrupted, handler, "allocate"], 50);
    let expected = below_main([
        from("by_raise", "on_signal"),
        from("by_system_call", "on_signal"),
        from("by_fault", "on_fault"),
        from("by_fault_at_once", "on_fault"),
    ]);
    has_chains("signals", &expected).assert_all_end("complete");
    equals_the_oracle("signals");
}

#[test]
fn longjmp_out_of_deep_frames_keeps_stacks_correct() {
    let descending = |depth: usize, last: &[&'static str]| [&["jump"], &vec!["descend"; depth + 1][..], last].concat();
    let expected = below_main([
        (descending(40, &["leave", "allocate"]), 100),
        (descending(5, &["leave", "allocate"]), 200),
        (descending(10, &["raise_here", "leave_handler", "allocate"]), 300),
        (vec!["jump", "allocate"], 600),
    ]);
    has_chains("jumps", &expected).assert_all_end("complete");
    equals_the_oracle("jumps");
}

#[test]
fn allocations_during_exceptions_match_count_shim() {
    let Traced { report, expected: totals } = Traced::with_counts("exceptions");
    report.assert_equals(&totals);
    report.assert_all_end("complete");
}

#[test]
fn stacks_during_exceptions_match_libgcc() {
    let (Traced { report, .. }, comparison) = Traced::with_oracle("exceptions");
    report.assert_nothing_lost();
    report.assert_all_end("complete");
    assert!(comparison.sampled > 200 * 10, "{comparison}");
    assert_eq!((comparison.sampled, comparison.seen), (report.totals.alloc_count, report.totals.alloc_count));
    assert_eq!(comparison.equal, comparison.sampled, "{}", comparison.differences.join("\n"));
    let bytes: u64 = report.stacks.iter().map(|stack| stack.totals.alloc_bytes).sum();
    assert_eq!(bytes, comparison.bytes);
}

#[test]
fn stacks_of_threads_on_one_cpu_do_not_mix() {
    let Traced { report, expected: totals } = Traced::victim("affinity");
    report.assert_nothing_lost();
    // Unmatched frees are not compared: the C library frees blocks that belong to the stacks of exited threads.
    assert_eq!(report.totals, totals.totals);
    let functions = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg", "hhhhhhhh"];
    let names = functions.map(|name| ["run_", "chain_", "leaf_"].map(|prefix| format!("{prefix}{name}")));
    let expected = names.iter().enumerate().map(|(number, [run, chain, leaf])| {
        let chain = vec![chain.as_str(); number * 7 + 1];
        ([&[run.as_str()], &chain[..], &[leaf]].concat(), 3000)
    });
    assert_eq!(report.chains(&victim::path("affinity")), expected.collect::<Chains<'_>>());
    assert_eq!(report.stacks.iter().filter(|stack| stack.totals.alloc_count > 0).count(), 8);
    report.assert_all_end("complete");
}

/// Events of children are not traced.
#[test]
fn parent_stacks_stay_correct_while_children_allocate() {
    let chain = [&["in_parent"; 13][..], &["allocate"]].concat();
    has_chains("deep_fork", &below_main([(chain, 10)])).assert_all_end("complete");
    equals_the_oracle("deep_fork");
}

/// Returns the stacks through function number `kind` of a victim. The blocks of this function have `kind` thousand
/// bytes and a few more.
fn through_function(report: &Report, kind: u64) -> Vec<(&str, Vec<&str>, u64)> {
    let kinds = report.stacks.iter().filter(|stack| stack.totals.alloc_bytes / stack.totals.alloc_count / 1000 == kind);
    kinds.map(|stack| (&*stack.end, stack.names(), stack.totals.alloc_count)).collect()
}

#[test]
fn generated_code_is_crossed_only_by_frame_pointer() {
    let Traced { report, expected: totals } = Traced::victim("generated");
    report.assert_equals(&totals);
    let [(end, names, count)] = &through_function(&report, 1)[..] else {
        panic!("not one stack: {:#?}", report.stacks)
    };
    assert_eq!((*end, *count), ("generated", 30));
    assert_eq!(names[names.len() - 5..], ["main", "through", "?", "called_back", "allocate"]);
    assert_eq!(names[0], "_start");
    for kind in 2..=4 {
        let expected = [("generated_cut", vec!["?", "called_back", "allocate"], 30)];
        assert_eq!(through_function(&report, kind), expected);
    }
    for (end, share) in [("generated", 0.25), ("generated_cut", 0.75), ("complete", 0.0)] {
        assert!((report.stack_quality[end] - share).abs() < 1e-9, "{:?}", report.stack_quality);
    }
    assert_eq!(equals_the_oracle("generated"), 120);
}

#[test]
fn code_without_rows_is_crossed_only_by_frame_pointer() {
    let Traced { report, expected: totals } = Traced::victim("no_rows");
    report.assert_equals(&totals);
    let complete = vec!["_start", "main", "outer", "through", "by_hand", "called_back", "allocate"];
    let [(end, names, count)] = &through_function(&report, 1)[..] else { panic!("{:#?}", report.stacks) };
    let of_libc = names.len() - (complete.len() - 1);
    assert_eq!(([&names[..1], &names[of_libc..]].concat(), *end, *count), (complete, "generated", 30));
    let by_frame_pointer: Vec<_> = report.stacks.iter().filter(|stack| stack.end == "generated").collect();
    let frames = by_frame_pointer.iter().flat_map(|stack| &stack.frames);
    let marked: Vec<_> =
        frames.filter(|frame| frame.by_frame_pointer).filter_map(|frame| frame.name.as_deref()).collect();
    assert_eq!(marked, ["through"]);
    for (kind, function) in (2..).zip(["without_frame", "with_data", "with_code", "with_cycle", "unaligned"]) {
        let expected = [("no_row", vec![function, "called_back", "allocate"], 30)];
        assert_eq!(through_function(&report, kind), expected);
    }
    assert_eq!(equals_the_oracle("no_rows"), 0);
}

#[test]
fn code_without_a_table_is_crossed_by_proven_frame_pointers() {
    let Traced { report, expected: totals } = Traced::victim("no_table");
    report.assert_equals(&totals);
    let [(end, names, count)] = &through_function(&report, 1)[..] else { panic!("{:#?}", report.stacks) };
    assert_eq!((names[0], *end, *count), ("_start", "generated", 30));
    assert_eq!(names[names.len() - 6..], ["main", "through", "twice", "once", "called_back", "allocate"]);
    let Traced { report, expected: totals } = Traced::victim("no_table.omitted");
    report.assert_equals(&totals);
    let expected = [("no_table", vec!["once", "called_back", "allocate"], 30)];
    assert_eq!(through_function(&report, 1), expected);
}
