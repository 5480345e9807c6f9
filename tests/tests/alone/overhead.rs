//! Estimation of the overhead, and `--max-overhead`.

use std::fs;

use memtrace_tests::{Outcome, Trace, Victim, breakpoints, victim};

const OVER_BUDGET: i32 = 11;

/// Starts a victim that only allocates and frees. Tracing makes it many times slower.
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
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
    victim.finish();
}

/// Returns the estimated share of the target's time, in percent, that follows `words`.
fn percent_after(outcome: &Outcome, words: &str) -> u64 {
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    let (_, rest) = outcome.stderr.split_once(words).expect("the message contains the words");
    let (number, _) = rest.split_once(" %").expect("a share in percent");
    number.parse().expect("a whole number")
}

#[test]
fn high_overhead_is_warned_of_with_options_that_lower_it() {
    let victim = flooding();
    let pid = victim.pid().to_string();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).expect("the victim runs");
    let warned = Trace::victim(&victim).options(&["--duration", "100ms"]).run();
    let expected = percent_after(&warned, "of one processor, ");
    let without_stacks = percent_after(&warned, "--max-depth 0 lowers it to about ");
    assert!(without_stacks < expected, "{}", warned.stderr);
    // A selection gives the same warning: its targets are all processes with this name.
    let selected = Trace::system_wide().options(&["--comm", name.trim(), "--duration", "100ms"]).run();
    percent_after(&selected, "--max-depth 0 lowers it to about ");
    // An option in use is not recommended.
    let without = Trace::victim(&victim).options(&["--duration", "100ms", "--max-depth", "0"]).run();
    assert!(!without.stderr.contains("--max-depth"), "{}", without.stderr);
}

/// Returns the processor time of a process so far, in seconds: `utime` and `stime` of proc_pid_stat(5).
fn processor_time(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    let ticks: u64 = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum();
    // The kernel reports hundredths of a second: USER_HZ (include/asm-generic/param.h).
    ticks as f64 / 100.0
}

#[test]
fn cost_of_tracing_excludes_setup_and_report() {
    let mut victim = victim::start_with("steady", &["100"]);
    let mut tracer = Trace::victim(&victim).start();
    let pid = tracer.process().pid();
    let attached = processor_time(pid);
    victim.work();
    let traced = processor_time(pid) - attached;
    let cost = tracer.stop().report().cost;
    victim.finish();
    // Loading the BPF programs takes most of the time before `attached`. Two values are rounded down to hundredths.
    assert!(attached > 0.1, "{attached} s before the trace");
    assert!(cost.tracing_cpu_s > traced - 0.02, "{traced} s while tracing: {cost:?}");
    assert!(cost.tracing_cpu_s < traced + 0.5 * attached, "{attached} s before, {traced} s while tracing: {cost:?}");
    assert!(cost.cpu_s > attached + traced, "{attached} s before, {traced} s while tracing: {cost:?}");
}
