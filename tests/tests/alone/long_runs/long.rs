//! Storms of processes.

use memtrace_tests::tracer::{DEFAULT_MEMORY_LIMIT, REPORT_MEMORY};

use super::*;

fn assert_crowd(report: &Report, expected: &VictimTotals, count: u64) {
    report.assert_nothing_lost();
    report.assert_consistent();
    assert_eq!(report.totals, expected.totals.at_exit());
    let children = report.processes.iter().filter(|process| process.totals.alloc_count > 0);
    assert_eq!(children.map(memtrace_tests::report::ProcessReport::runs).sum::<u64>(), count);
}

#[test]
fn storm_of_forks_is_recorded_completely() {
    const COUNT: u64 = 3000;
    let mut victim = victim::start_with("crowd", &[&COUNT.to_string(), "100"]);
    let tracer = Trace::victim(&victim).option("--children").start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    assert_crowd(&report, &expected, COUNT);
}

#[test]
fn each_of_five_thousand_running_processes_is_traced() {
    const COUNT: u64 = 5000;
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("crowd"), "mt-crowd");
    let mut victim = Victim::start(Command::new(program).args([&COUNT.to_string(), "0"]));
    let tracer = Trace::system_wide().options(&["--comm", "mt-crowd"]).start();
    let expected = victim.work();
    let peak = tracer.peak_rss();
    let outcome = tracer.stop();
    victim.finish();
    // All processes exit at the same time. On a busy machine, memtrace may miss perf events, but no
    // exit.
    let mut report = outcome.report_with_code(outcome.code.filter(|code| *code == 20).unwrap_or(0));
    report.content.losses.insert(LossReason::MappingsLost.name().into(), 0);
    assert_crowd(&report, &expected, COUNT);
    assert_eq!(report.untraced.total.count, 0);
    assert!(peak <= DEFAULT_MEMORY_LIMIT, "{peak} bytes");
    let with_report = report.cost.as_ref().expect("the trace has ended").peak_rss_bytes;
    assert!(with_report <= DEFAULT_MEMORY_LIMIT + REPORT_MEMORY, "{with_report} bytes");
}

/// Each cgroup is removed at the end of its process, as systemd does with a unit.
#[test]
fn processes_of_transient_cgroups_keep_their_cgroups() {
    const CGROUPS: usize = 1000;
    // The other processes are in a group for each cgroup.
    const KEPT: &str = "500";
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("short_lived"), "mt-transient");
    let parent = Cgroup::new();
    let options = ["--comm", "mt-transient", "--keep-ended", KEPT, "--all-stacks"];
    let tracer = Trace::system_wide().options(&options).start();
    let mut expected = BTreeMap::new();
    for number in 0..CGROUPS {
        let cgroup = parent.path().join(format!("run-u{number}.service"));
        fs::create_dir(&cgroup).expect("root can create a cgroup");
        let script = format!("echo $$ > {}/cgroup.procs && exec {}", cgroup.display(), program.display());
        let child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("sh is installed");
        let name = Path::new("/")
            .join(parent.path().file_name().unwrap_or_default())
            .join(cgroup.file_name().unwrap_or_default());
        expected.insert(name.to_string_lossy().into_owned(), totals_of(child));
        fs::remove_dir(&cgroup).expect("the cgroup is empty");
    }
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let found: BTreeMap<String, Totals> = report
        .processes
        .iter()
        .map(|process| (process.cgroup.as_deref().unwrap_or_default().to_owned(), process.totals))
        .collect();
    assert_eq!(found, expected);
}
