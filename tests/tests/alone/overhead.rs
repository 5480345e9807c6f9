//! Estimation of the overhead, and `--max-overhead`.

use std::fs;

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::{Outcome, Trace, Victim, breakpoints, victim};

const OVER_BUDGET: i32 = 11;
const LOST: i32 = 20;

/// Size of the blocks of `busy_later` and `flood`, in bytes.
const SIZE: u64 = 48;
/// Smallest power of two that filters these blocks.
const RAISED: u64 = 64;
/// Minimum time above the limit until the minimum size is raised, and again until the trace ends, in seconds. memtrace
/// tolerates 15 seconds, but its measurement begins shortly before the time of the report.
const TOLERATED_FOR: f64 = 14.0;
/// Number of live blocks of the thread of `busy_later`.
const WINDOW: u64 = 16;

/// Start of the warning about a high overhead. The options that lower it follow.
pub(super) const WARNING: &str = "memtrace: warning: this is more than 25 % of the target's processor time; ";
/// Options for `flood`, each with `N` percent of the target's processor time that tracing takes with it.
#[cfg(target_arch = "x86_64")]
const OPTIONS: &str = "--allow-patching (samples, and changes code of the target) lowers it to about N %, --min-size 64 to \
                       about N %";
#[cfg(not(target_arch = "x86_64"))]
const OPTIONS: &str = "--min-size 64 lowers it to about N %";
/// Options for a trace that has the minimum size already.
#[cfg(target_arch = "x86_64")]
const OTHER_OPTIONS: &str = "--allow-patching (samples, and changes code of the target) lowers it to about N %";
#[cfg(not(target_arch = "x86_64"))]
const OTHER_OPTIONS: &str = "`memtrace faults --sample 64` costs a fraction, and shows resident pages";

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
    outcome.assert_refused(OVER_BUDGET, &["--max-overhead", "10 %", " more processor time (", "% of one processor)"]);
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

#[test]
fn blocks_of_before_a_raised_minimum_size_are_freed_after_it() {
    let mut victim = victim::start("busy_later");
    let options = ["--max-overhead", "10%", "--max-depth", "0", "--ring-size", "64MiB"];
    let mut tracer = Trace::victim(&victim).options(&options).start();
    victim.process().write_line("");
    let raised = "memtrace: to stay below --max-overhead, only allocations of at least 64 B are traced from now on";
    assert!(tracer.process().wait_for_stderr_line(raised), "the minimum size is not raised");
    let done = victim.work().totals;
    let report = tracer.stop().report();
    victim.finish();
    report.assert_consistent();
    report.assert_nothing_lost();
    let raised = report.raised_min_size.expect("the report marks the raised size");
    assert!(raised.bytes == RAISED && raised.at_s >= TOLERATED_FOR, "{raised:?}");
    // Each allocation is recorded or filtered. Each free belongs to a recorded or to a filtered block.
    let (totals, filtered) = (report.totals, report.filtered);
    assert!(totals.alloc_count > 0 && filtered.count > 0, "{totals:?}, {filtered:?}");
    assert_eq!(totals.alloc_count + filtered.count, done.alloc_count);
    assert_eq!(totals.alloc_bytes + filtered.bytes, done.alloc_bytes);
    assert_eq!(totals.free_count + report.unmatched_frees, done.free_count);
    assert_eq!((totals.live_count, report.unmatched_frees), (0, filtered.count));
}

#[test]
fn target_that_becomes_busy_above_max_overhead_is_detached() {
    let mut victim = victim::start_with("flood", &["1000000000"]);
    let tracer = Trace::victim(&victim).options(&["--max-overhead", "10%"]).start();
    victim.process().write_line("");
    let outcome = tracer.wait();
    let report = outcome.report_with_code(LOST);
    assert_eq!(report.loss_count(LossReason::OverheadLimit), 1);
    let raised = report.raised_min_size.expect("the report marks the raised size");
    assert!(raised.bytes == RAISED && raised.at_s >= TOLERATED_FOR, "{raised:?}");
    assert!(report.duration_s >= raised.at_s + TOLERATED_FOR, "{} s", report.duration_s);
    assert_eq!(report.filtered.bytes, report.filtered.count * SIZE);
    for words in ["tracing costs the targets more than --max-overhead allows", "overhead_limit"] {
        assert!(outcome.stderr.contains(words), "`{words}` is not in: {}", outcome.stderr);
    }
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
}

#[test]
fn command_above_max_overhead_is_detached() {
    // The command keeps the output of the trace open, so it has to end by itself: it reads one line and then the end.
    let limited = format!("echo | {} 200000000", victim::path("flood").display());
    let tracer = Trace::command(["sh", "-c", &limited]).options(&["--max-overhead", "10%"]).start();
    let report = tracer.wait().report_with_code(LOST);
    assert_eq!(report.loss_count(LossReason::OverheadLimit), 1);
    assert!(report.raised_min_size.is_some());
}

#[test]
fn probe_hits_of_allocations_and_frees_are_counted() {
    let mut victim = victim::start("busy_later");
    let options = ["--probe-site", "return", "--max-depth", "0", "--ring-size", "64MiB"];
    let mut tracer = Trace::victim(&victim).options(&options).start();
    victim.process().write_line("");
    // The programs are timed for a part of the first second only.
    assert!(tracer.process().wait_for_stderr_line(WARNING), "no warning");
    let done = victim.work().totals;
    let cost = tracer.stop().report().cost.expect("the trace has ended");
    victim.finish();
    // The thread frees null pointers first.
    let frees = done.free_count + WINDOW;
    assert_eq!(cost.probe_hits, Some(2 * done.alloc_count + frees));
}

/// Returns the estimated share of the target's processor time, in percent, that follows `words`.
fn percent_after(outcome: &Outcome, words: &str) -> f64 {
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    let (_, rest) = outcome.stderr.split_once(words).expect("the message contains the words");
    let (number, _) = rest.split_once(" %").expect("a share in percent");
    number.parse().expect("a number")
}

/// Splits a list of options into its words, with `N` in place of each effect, and the effects in percent.
pub(super) fn effects(options: &str) -> (String, Vec<f64>) {
    let mut parts = options.split("about ");
    let mut words = vec![parts.next().unwrap_or_default().to_owned()];
    let mut percents = Vec::new();
    for part in parts {
        let (percent, rest) = part.split_once(" %").expect("a share in percent");
        percents.push(percent.parse().expect("a number"));
        words.push(format!("N %{rest}"));
    }
    (words.join("about "), percents)
}

/// Returns the only warning about a high overhead: its options, and the effect of each.
fn warned_effects(outcome: &Outcome) -> (String, Vec<f64>) {
    let mut warnings = outcome.stderr.lines().filter_map(|line| line.strip_prefix(WARNING));
    let (options, other) = (warnings.next(), warnings.next());
    assert!(options.is_some() && other.is_none(), "not one warning: {}", outcome.stderr);
    effects(options.unwrap_or_default())
}

#[test]
fn high_overhead_is_warned_of_with_options_that_lower_it() {
    let victim = flooding();
    let pid = victim.pid().to_string();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).expect("the victim runs");
    let warned = Trace::victim(&victim).options(&["--duration", "100ms"]).run();
    let expected = percent_after(&warned, "of one processor, ");
    let (options, mut percents) = warned_effects(&warned);
    assert_eq!(options, OPTIONS);
    // Samples cost less than probes without records, and these less than probes with a record and a stack for each call.
    percents.push(expected);
    assert!(percents.is_sorted_by(|lower, higher| lower < higher), "{}", warned.stderr);
    // A selection gives the same warning: its targets are all processes with this name.
    let selected = Trace::system_wide().options(&["--comm", name.trim(), "--duration", "100ms"]).run();
    assert_eq!(warned_effects(&selected).0, OPTIONS);
    // An option in use is not recommended.
    let without = Trace::victim(&victim).options(&["--duration", "100ms", "--min-size", "64"]).run();
    assert_eq!(warned_effects(&without).0, OTHER_OPTIONS);
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
    let cost = tracer.stop().report().cost.expect("the trace has ended");
    victim.finish();
    // Loading the BPF programs takes most of the time before `attached`. Two values are rounded down to hundredths.
    assert!(attached > 0.1, "{attached} s before the trace");
    assert!(cost.tracing_cpu_s > traced - 0.02, "{traced} s while tracing: {cost:?}");
    assert!(cost.tracing_cpu_s < traced + 0.5 * attached, "{attached} s before, {traced} s while tracing: {cost:?}");
    assert!(cost.cpu_s > attached + traced, "{attached} s before, {traced} s while tracing: {cost:?}");
}
