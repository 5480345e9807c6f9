//! Page faults and RSS in the report match the kernel at any sampling rate: `/proc` for running processes, wait4
//! for exited ones.

use std::collections::BTreeMap;

use memtrace_tests::page_counts::rss;
use memtrace_tests::process::{page_faults, wait_until_reading_stdin};
use memtrace_tests::report::ProcessReport;
use memtrace_tests::{Report, Trace, Victim, victim};
use serde::Deserialize;

/// First line that the victim prints, with the pid of the child that the victim has already forked.
#[derive(Deserialize)]
struct Ready {
    early: u32,
}

/// rusage of an exited process, from wait4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct ExitRusage {
    pid: u32,
    minor: u64,
    major: u64,
    peak: u64,
}

/// Returns the minor and major faults in the report, summed over all images of the process.
fn reported_faults(report: &Report, pid: u32) -> [u64; 2] {
    let entries = report.entries_of(pid);
    assert!(!entries.is_empty(), "process {pid} is not reported: {:#?}", report.processes);
    let sum = |of: fn(&ProcessReport) -> Option<u64>| {
        entries.iter().map(|process| of(process).expect("the fault count is known")).sum::<u64>()
    };
    [sum(|process| process.kernel?.minor_faults), sum(|process| process.kernel?.major_faults)]
}

/// Traces the victim, and asserts that faults and RSS match the kernel. `interval`: N, to sample one page in N.
/// `trace`: returns the trace of the victim and its first child.
fn assert_rusage_matches(interval: &str, trace: impl FnOnce(&Victim, u32) -> Trace) {
    let mut victim = victim::start("rusage");
    let line = victim.process().read_line();
    let Ready { early } = serde_json::from_str(&line).expect("the victim prints its child");
    wait_until_reading_stdin(early);
    victim.wait_until_reading_stdin();
    let [before, before_early] = [victim.pid(), early].map(page_faults);
    let tracer = trace(&victim, early).options(&["--events", "fault", "--sample", interval]).start();
    victim.process().write_line("");
    let line = victim.process().read_line();
    let ended: BTreeMap<String, ExitRusage> =
        serde_json::from_str(&line).expect("the victim prints the rusage of wait4");
    victim.wait_until_reading_stdin();
    let (after, resident) = (page_faults(victim.pid()), rss(victim.pid()));
    let report = tracer.stop().report();
    let pid = victim.pid();
    victim.finish();

    report.assert_nothing_lost();
    let since = |after: [u64; 2], before: [u64; 2]| [after[0] - before[0], after[1] - before[1]];
    assert_eq!(reported_faults(&report, pid), since(after, before));
    assert!(after[0] - before[0] >= 1000, "the victim touches 1000 pages");
    let living = report.entries_of(pid);
    let resident_bytes: Vec<_> =
        living.iter().map(|process| process.kernel.and_then(|counts| counts.resident_bytes)).collect();
    assert_eq!(resident_bytes, [Some(resident)], "of its only process image");
    for (name, ExitRusage { pid, minor, major, peak }) in ended {
        let before = if pid == early { before_early } else { [0; 2] };
        assert_eq!(
            reported_faults(&report, pid),
            since([minor, major], before),
            "{name}: {:#?}",
            report.entries_of(pid)
        );
        let last = report.entries_of(pid).into_iter().next_back().expect("the process has an entry");
        assert_eq!((last.ended.as_deref(), last.peak_resident_bytes), (Some("exit"), Some(peak)), "{name}: {last:#?}");
        assert_eq!(last.kernel.and_then(|counts| counts.resident_bytes), None);
    }
}

#[test]
fn faults_and_rss_of_a_process_tree_match_the_kernel() {
    assert_rusage_matches("64", |victim, early| Trace::pids(&[victim.pid(), early]).option("--children"));
}

#[test]
fn faults_and_rss_of_an_executable_match_the_kernel() {
    assert_rusage_matches("64", |_, _| Trace::system_wide().option("--exe").option(victim::path("rusage")));
}

#[test]
fn faults_and_rss_match_with_an_empty_sample() {
    assert_rusage_matches("4000000000", |_, _| Trace::system_wide().option("--exe").option(victim::path("rusage")));
}
