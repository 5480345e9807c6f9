//! Estimation of the overhead, and `--max-overhead`.

use memtrace_tests::{Trace, Victim, breakpoints, victim};

const OVER_BUDGET: i32 = 11;

/// A victim that only allocates and frees: tracing makes it many times slower.
fn flooding() -> Victim {
    let mut victim = victim::start_with("flood", &["1000000000"]);
    victim.process().write_line("");
    victim
}

#[test]
fn trace_above_max_overhead_is_refused_and_detached() {
    let victim = flooding();
    let outcome = Trace::victim(&victim).options(&["--max-overhead", "10%"]).run();
    outcome.assert_refused(OVER_BUDGET, &["--max-overhead", "10 %"]);
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
}

#[test]
fn trace_below_max_overhead_is_exact_and_prints_an_estimate() {
    let mut victim = victim::start_with("steady", &["100"]);
    let tracer = Trace::victim(&victim).options(&["--max-overhead", "10"]).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    outcome.report().assert_equals(&expected);
    assert!(outcome.stderr.contains("allocations per second, tracing takes about"), "{}", outcome.stderr);
    victim.finish();
}
