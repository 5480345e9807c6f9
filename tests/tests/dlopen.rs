//! Libraries loaded with dlopen during a trace.

use std::process::Command;

use memtrace_tests::{Report, Trace, Victim, victim};

/// Returns the stacks that allocated blocks of `size` bytes: end, functions from `main` on, and number of allocations.
fn chains(report: &Report, size: u64) -> Vec<(&str, Vec<&str>, u64)> {
    let stacks = report.stacks.iter().filter(|stack| stack.totals.alloc_bytes == stack.totals.alloc_count * size);
    stacks
        .map(|stack| {
            let names = stack.names().into_iter().skip_while(|name| *name != "main").collect();
            (&*stack.end, names, stack.totals.alloc_count)
        })
        .collect()
}

/// Returns a complete stack below `main`, with a recursion of `depth` frames in a library.
fn complete(descend: &'static str, depth: usize, leaf: &'static str) -> [(&'static str, Vec<&'static str>, u64); 1] {
    let chain = [&["main", "with", "use", "take"][..], &vec![descend; depth], &[leaf]].concat();
    [("complete", chain, 50)]
}

/// Traces the victim. The victim calls each library after memtrace has loaded the unwind table of the library.
fn load(arguments: &[&str]) -> Report {
    let libraries = ["libone.so", "libother.so"].map(victim::path);
    let mut victim = Victim::start(Command::new(victim::path("plugins")).args(&libraries).args(arguments));
    let mut tracer = Trace::victim(&victim).option("-vv").start();
    victim.process().write_line("");
    for library in &libraries {
        assert_eq!(victim.process().read_line(), "loaded");
        tracer.wait_for_table(library);
        victim.process().write_line("");
    }
    // The printed totals are not compared: they lack the allocations of the dynamic linker.
    victim.process().read_line();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    report.assert_consistent();
    report
}

/// memtrace is stopped from before the library is mapped until after the library's last call, so no unwind table exists
/// during the calls.
#[test]
fn stacks_from_before_the_table_exists_are_complete() {
    let libraries = ["libone.so", "libother.so"].map(victim::path);
    let mut victim = Victim::start(Command::new(victim::path("plugins")).args(&libraries));
    let tracer = Trace::victim(&victim).start();
    tracer.suspend();
    for _ in &libraries {
        victim.process().write_line("");
        assert_eq!(victim.process().read_line(), "loaded");
    }
    victim.process().write_line("");
    // When the victim prints its totals, all calls have returned.
    victim.process().read_line();
    tracer.resume();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    report.assert_consistent();
    assert_eq!(chains(&report, 1001), complete("one_descend", 4, "one_leaf"));
    assert_eq!(chains(&report, 2002), complete("other_descend", 7, "other_leaf"));
}

#[test]
fn dlopened_library_has_complete_stacks() {
    let report = load(&[]);
    assert_eq!(chains(&report, 1001), complete("one_descend", 4, "one_leaf"));
    assert_eq!(chains(&report, 2002), complete("other_descend", 7, "other_leaf"));
}

/// The second library usually gets the address of the first.
#[test]
fn unloaded_library_keeps_its_stacks() {
    let report = load(&["unload"]);
    assert_eq!(chains(&report, 2002), complete("other_descend", 7, "other_leaf"));
    assert_eq!(chains(&report, 1001), complete("one_descend", 4, "one_leaf"));
}
