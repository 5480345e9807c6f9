//! Tests that use the whole machine.

use super::*;

#[test]
fn other_memtrace_processes_are_traced_only_by_pid() {
    let mut victim = victim::start("exact");
    let other = Trace::victim(&victim).start();
    let tracer = Trace::pids(&[]).options(&["--comm", "memtrace", "--comm", "exact"]).start();
    victim.work();
    other.stop().assert_code(0);
    let report = tracer.stop().report();
    let pid = victim.pid();
    victim.finish();
    // Victims of other tests may run at the same time.
    assert!(report.processes.iter().any(|process| process.pid == pid));
    assert!(report.processes.iter().all(|process| process.comm == "exact"), "{:#?}", report.processes);
}
