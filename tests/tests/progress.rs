//! Progress of a trace on standard error.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use memtrace_tests::{Trace, Tracer, victim};

/// Advances the clock of memtrace by a minute, and returns the line that memtrace writes for this
/// minute.
fn advance(tracer: &mut Tracer, minute: u32) -> String {
    tracer.process().signal(libc::SIGUSR1);
    let start = format!("memtrace: {minute}:");
    let written = RefCell::new(String::new());
    let is_expected = |line: &str| {
        line.clone_into(&mut written.borrow_mut());
        line.starts_with(&start)
    };
    assert!(tracer.process().wait_for_stderr(is_expected), "memtrace exited before minute {minute}");
    written.into_inner()
}

#[test]
fn log_has_a_line_for_each_minute() {
    let mut victim = victim::start_with("steady", &["100"]);
    let trace = Trace::victim(&victim).environment("LD_PRELOAD", victim::path("libclock_shim.so"));
    let mut tracer = trace.start();
    let expected = victim.work();
    let end = format!("  {} B live  0 events/s  0 lost", expected.totals.live_bytes);
    // The events reach the ledgers after some lines. On a busy machine, this can take seconds.
    let minutes = (1..60).find(|&minute| {
        if minute > 10 {
            thread::sleep(Duration::from_millis(500));
        }
        advance(&mut tracer, minute).ends_with(&end) && minute > 2
    });
    let outcome = tracer.stop();
    victim.finish();
    outcome.report().assert_equals(&expected);
    let lines: Vec<_> = outcome.stderr.lines().filter(|line| line.contains(" events/s  ")).collect();
    assert_eq!(Some(lines.len() as u32), minutes, "{lines:#?}");
}

/// Returns the seconds of a time such as `1:59`.
fn seconds(time: &str) -> Option<u64> {
    let (minutes, seconds) = time.split_once(':')?;
    Some(minutes.parse::<u64>().ok()? * 60 + seconds.parse::<u64>().ok()?)
}

#[test]
fn progress_counts_down_the_duration() {
    let mut victim = victim::start_with("steady", &["100"]);
    let trace = Trace::victim(&victim).environment("LD_PRELOAD", victim::path("libclock_shim.so"));
    let mut tracer = trace.options(&["-d", "1h"]).start();
    victim.work();
    // The clock advances by a minute at each signal, and by the time that passes.
    for passed in 1..=3 {
        tracer.process().signal(libc::SIGUSR1);
        let written = RefCell::new(String::new());
        let is_progress = |line: &str| {
            line.clone_into(&mut written.borrow_mut());
            line.contains(" left  ")
        };
        assert!(tracer.process().wait_for_stderr(is_progress), "memtrace exited before minute {passed}");
        let line = written.into_inner();
        let left = line.strip_prefix("memtrace: ").and_then(|line| seconds(line.split_once(" left  ")?.0));
        let most = (60 - passed) * 60;
        assert!(left.is_some_and(|left| (most - 59..=most).contains(&left)), "{line}");
    }
    let _ = tracer.stop();
    victim.finish();
}

#[test]
fn top_sites_are_shown_during_the_trace() {
    let mut victim = victim::start_with("steady", &["5000"]);
    let mut tracer = Trace::victim(&victim).options(&["--every", "1s"]).start();
    let expected = victim.work().totals;
    assert_eq!((expected.live_bytes, expected.live_count), (45_000, 9));
    let sites = |line: &str| {
        line.trim() == "100%  43.95 KiB in 9 blocks  work < main" || line.contains("in 9 blocks  work < main < ")
    };
    assert!(tracer.process().wait_for_stderr(sites));
    let _ = tracer.stop();
    victim.finish();
}
