//! Patched processes with several threads, and with signals.

use memtrace_object::overlay::layout::FIRST_DRAWS;
use serde::Deserialize;

use super::*;

/// Number of threads.
const THREADS: u64 = 16;

#[test]
fn threads_that_wait_are_counted_exactly() {
    let mut target = Target::with("patch_threads", &["ring", "16", "1000"], None);
    let tracer = target.trace(EACH);
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    assert_sites(&report, "patch_threads.c", &expected);
    let facts = patched(&report, target.pid());
    assert_eq!((facts.allocated_bytes, facts.exact), (Some(expected.totals.alloc_bytes), true));
    assert_eq!(facts.samples, expected.totals.alloc_count);

    // At a large interval, most threads have no sample. All of them have a countdown.
    let tracer = target.trace(&["--sample-interval", "64MiB", "--allow-patching"]);
    let expected = target.victim.work();
    let first_draws = PatchStub::of(target.pid()).word(FIRST_DRAWS);
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    // The main thread frees, but does not allocate.
    assert_eq!(first_draws, THREADS);
    let facts = patched(&report, target.pid());
    assert_eq!((facts.allocated_bytes, facts.exact), (Some(expected.totals.alloc_bytes), true));
    target.finish();
}

#[test]
fn threads_that_start_and_end_are_counted() {
    const GENERATIONS: u64 = 20;
    const INTERVAL: u64 = 4096;
    let mut target = Target::with("patch_threads", &["short", "16", "20"], None);
    let tracer = target.trace(EACH);
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    // The process has blocks of the C library, too: for new threads.
    assert_sites(&report, "patch_threads.c", &expected);
    assert_eq!(expected.totals.alloc_count, THREADS * GENERATIONS * 32);

    let options = ["--sample-interval", "4KiB", "--allow-patching", "--ring-size", "64MiB"];
    let tracer = target.trace(&options);
    let expected = target.victim.work();
    let first_draws = PatchStub::of(target.pid()).word(FIRST_DRAWS);
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    let of_blocks: u64 = of_leaf(&report, "take_in_short").alloc_bytes;
    let total = expected.totals.alloc_bytes;
    // About 15 MB: 3,700 samples, so a standard deviation is 1.7 % at most.
    assert!((of_blocks as f64 / total as f64 - 1.0).abs() < DEVIATIONS * 0.017, "{of_blocks} of {total}");
    // What a thread has left of its countdown when it ends is known on average only.
    let facts = patched(&report, target.pid());
    let allocated = facts.allocated_bytes.expect("it is known");
    assert!(!facts.exact, "{facts:?}");
    assert!((1..=THREADS * GENERATIONS + 1).contains(&first_draws), "{first_draws}");
    let countdowns = DEVIATIONS * INTERVAL as f64 * ((THREADS * GENERATIONS) as f64).sqrt();
    // A new stack has an array of at most 1 KiB, which the C library allocates.
    let arrays = (THREADS * GENERATIONS * 1024) as f64;
    let difference = allocated as f64 - total as f64;
    assert!((-countdowns..countdowns + arrays).contains(&difference), "{allocated}, and {total} of the blocks");
    target.finish();
}

/// Numbers of the victim `patch_signals`.
#[derive(Debug, Deserialize)]
struct Signals {
    signals: u64,
    main_blocks: u64,
    main_bytes: u64,
    handler_blocks: u64,
    handler_bytes: u64,
}

fn signals(target: &mut Target) -> Signals {
    target.victim.read_json()
}

#[test]
fn blocks_of_a_signal_handler_are_counted() {
    let mut target = Target::with("patch_signals", &[], None);
    let tracer = target.trace(EACH);
    target.victim.process().write_line("");
    let expected = signals(&mut target);
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let counts = |leaf: &str| {
        let totals = of_leaf(&report, leaf);
        (totals.alloc_count, totals.alloc_bytes)
    };
    assert!(expected.signals >= 2000 && expected.handler_blocks > 100, "{expected:?}");
    assert_eq!(counts("take_in_main"), (expected.main_blocks, expected.main_bytes));
    assert_eq!(counts("take_in_handler"), (expected.handler_blocks, expected.handler_bytes));
    target.finish();
}

#[test]
fn signals_at_10_khz_do_not_disturb_attach_and_detach() {
    let mut target = Target::with("patch_signals", &[], None);
    target.victim.process().write_line("until");
    for _ in 0..5 {
        let tracer = target.trace(&["--sample-interval", "64KiB", "--allow-patching"]);
        assert!(patches(target.pid()).len() >= 4);
        tracer.stop().report().assert_nothing_lost();
        target.assert_restored();
    }
    target.victim.process().write_line("");
    let done = signals(&mut target);
    assert!(done.signals > 5000, "{done:?}");
    target.finish();
}
