//! If memtrace is killed at any moment, its targets continue undisturbed and no probe remains.

mod long;

use memtrace_tests::{Outcome, Trace, Tracer, breakpoints, victim};

/// Sends SIGKILL to memtrace, and waits until it has exited.
fn kill(mut tracer: Tracer) -> Outcome {
    tracer.process().signal(libc::SIGKILL);
    tracer.wait()
}

#[test]
fn second_sigint_keeps_the_report_and_leaves_no_probe() {
    let mut victim = victim::start("exact");
    let mut tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    tracer.process().signal(libc::SIGINT);
    assert!(tracer.process().wait_for_stderr_line("memtrace: wrote"));
    let outcome = tracer.stop();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    outcome.report().assert_equals(&expected);
    // The kernel may still be removing probes.
    breakpoints::wait_until_removed(victim.pid());
    victim.finish();
}
