//! Tests that select processes of the whole machine, or load it.

mod long;

use memtrace_object::overlay::layout::{INTERVAL_BASE, SHIFT};
use memtrace_tests::breakpoints;

use super::*;

/// Starts a copy of the victim `patch_steps` with another short name.
fn start_copy(scratch: &Scratch, comm: &str, arguments: &[&str]) -> Target {
    let mut command = Command::new(scratch.copy(victim::path("patch_steps"), comm));
    Target::start(command.args(arguments))
}

#[test]
fn selected_processes_with_memory_are_patched() {
    const COMM: &str = "mt-patched";
    let (scratch, other_scratch) = (Scratch::new(), Scratch::new());
    let mut target = start_copy(&scratch, COMM, &["3000", "ballast"]);
    // It has little memory, and allocates nothing.
    let mut idle = start_copy(&other_scratch, COMM, &["3000"]);
    let tracer = Trace::system_wide().options(EACH).options(&["--comm", COMM]).start();
    wait_until_patched(target.pid());
    idle.assert_untouched();
    let expected = target.victim.work();
    let of_idle = idle.victim.work();
    let report = tracer.stop().report();
    report.assert_consistent();
    report.assert_nothing_lost();
    let numbers = only_entry(&report, target.pid());
    assert_eq!(numbers.totals, expected.totals);
    assert!(of_idle.totals.alloc_count > 0);
    idle.assert_untouched();
    let untraced: Vec<_> = report.untraced.processes.iter().map(|process| (process.pid, &*process.reason)).collect();
    assert_eq!(untraced, [(idle.pid(), "not_patched")]);
    assert_eq!(report.content.patched_processes.len(), 1, "{:?}", report.content.patched_processes);
    target.finish();
    idle.victim.finish();
}

#[test]
fn interval_follows_the_rate_without_a_bias() {
    const FIRST_INTERVAL: u64 = 512 << 10;
    const RATE: f64 = 1000.0;
    let mut target = Target::with("patch_steps", &["1000"], None);
    let pid = target.pid();
    let tracer = target.trace(&["--samples-per-second", "1000", "--allow-patching"]);
    target.victim.process().write_line("until");
    // The victim allocates some GB a second, so its interval has to grow.
    let stub = PatchStub::of(pid);
    let interval = || stub.word(INTERVAL_BASE) << (stub.word(SHIFT) & 0xff);
    poll::until(|| match interval() {
        bytes if bytes > FIRST_INTERVAL => Ok(()),
        bytes => Err(bytes),
    });
    let samples = stub.word(SAMPLES);
    poll::until(|| match stub.word(SAMPLES) - samples {
        more if more >= 1000 => Ok(()),
        more => Err(more),
    });
    target.victim.process().write_line("");
    let expected: VictimTotals = target.victim.read_totals();
    // The line has also made it perform steps.
    let expected_after = target.victim.read_totals();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let numbers = &report.content.totals;
    let interval_of_sum = (numbers.alloc_bytes_low, numbers.alloc_bytes_high);
    assert_near(expected_after.totals.alloc_bytes, numbers.alloc_bytes, interval_of_sum, 0.005..0.1);
    assert!(expected_after.totals.alloc_bytes > expected.totals.alloc_bytes);
    let facts = patched(&report, pid);
    assert_eq!((facts.allocated_bytes, facts.exact), (Some(expected_after.totals.alloc_bytes), true));
    // At the first interval, it would take some thousand samples a second.
    assert!((facts.samples as f64) < 3.0 * RATE * report.duration_s.max(1.0), "{facts:?} in {} s", report.duration_s);
    target.finish();
}

#[test]
fn limit_of_the_overhead_chooses_samples() {
    let mut target = Target::with("patch_steps", &["1000"], None);
    target.victim.process().write_line("until");
    let options = ["--max-overhead", "5%", "--allow-patching", "--duration", "1s"];
    let outcome = Trace::victim(&target.victim).options(&options).run();
    let report = outcome.report();
    report.assert_consistent();
    let sources: Vec<_> = samplers(&report).into_iter().map(|(source, _)| source).collect();
    assert_eq!(sources, ["patched"]);
    assert!(report.totals.alloc_count > 0);
    assert_eq!(report.raised_min_size, None);
    breakpoints::wait_until_removed(target.pid());
    target.assert_restored();
    target.victim.process().write_line("");
    target.victim.read_totals();
    target.finish();
}
