//! Other tracers with probes in the functions of a patched process.

use memtrace_tests::uprobe::Uprobe;

use super::*;

/// Functions with a first instruction that bpftrace probes.
const FUNCTIONS: &[&str] = &["malloc", "calloc", "realloc", "free"];

/// Places and removes uprobes at the entries of the functions of a patched process, `rounds` times.
fn assert_entries_can_be_probed(preloaded: Option<&str>, name: &str, rounds: usize) {
    let mut target = Target::with("patch_steps", &["300"], preloaded);
    let pid = target.pid();
    let file = library(pid, name);
    let tracer = target.trace(EACH);
    let patched_text = Text::of(pid);
    for _ in 0..rounds {
        let probes = Uprobe::at_entries(&file, FUNCTIONS, Some(pid));
        target.victim.work();
        drop(probes);
        Text::of(pid).assert_same(&patched_text);
    }
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    target.finish();
}

#[test]
fn entries_of_patched_functions_of_glibc_can_be_probed() {
    assert_entries_can_be_probed(None, "libc.so.6", 5);
}

#[test]
fn entries_of_patched_functions_of_jemalloc_can_be_probed() {
    assert_entries_can_be_probed(Some(JEMALLOC), JEMALLOC, 5);
}

#[test]
fn process_with_probed_entries_is_patched() {
    let mut target = Target::steps();
    let pid = target.pid();
    let probes = Uprobe::at_entries(&library(pid, "libc.so.6"), FUNCTIONS, Some(pid));
    let tracer = target.trace(EACH);
    target.victim.work();
    drop(probes);
    let expected = target.victim.work();
    tracer.stop().report().assert_equals(&expected);
    target.finish();
}

#[test]
fn exact_trace_and_samples_of_a_process_have_the_same_totals() {
    for exact_first in [true, false] {
        let mut target = Target::steps();
        let exact_options = ["--ring-size", "64MiB"];
        let exact = exact_first.then(|| target.trace(&exact_options));
        let sampled = target.trace(EACH);
        let exact = exact.unwrap_or_else(|| target.trace(&exact_options));
        let expected = target.victim.work();
        let [exact, sampled] = [exact, sampled].map(|tracer| tracer.stop().report());
        sampled.assert_equals(&expected);
        exact.assert_equals(&expected);
        assert!(exact.samplers.is_empty(), "{:?}", exact.samplers);
        target.finish();
    }
}

#[test]
fn process_that_another_memtrace_samples_is_refused() {
    let mut target = Target::steps();
    let mut first = target.trace(EACH);
    let owner = first.process().pid().to_string();
    let patched_text = Text::of(target.pid());
    Trace::victim(&target.victim).options(EACH).run().assert_refused(UNTRACEABLE, &[&owner]);
    Text::of(target.pid()).assert_same(&patched_text);
    let expected = target.victim.work();
    first.stop().report().assert_equals(&expected);
    target.finish();
}
