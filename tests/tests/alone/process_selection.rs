//! Selection of the traced processes.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use memtrace_tests::{Cgroup, Report, Scratch, Totals, Trace, Victim, VictimTotals, process, victim};
use serde::Deserialize;

/// Output of one process of the tree.
#[derive(Debug, Deserialize)]
struct ProcessOutput {
    pid: u32,
    #[serde(flatten)]
    expected: VictimTotals,
}

/// Returns the outputs of `process_tree` in this order: first child, second child, second child after its exec, third child,
/// parent.
fn read_outputs(victim: &mut Victim) -> [ProcessOutput; 5] {
    victim.process().write_line("");
    [(); 5].map(|()| serde_json::from_str(&victim.process().read_line()).expect("the totals are valid JSON"))
}

/// Asserts that the totals of each process match, with frees of inherited blocks counted separately.
fn assert_process_tree(report: &Report, outputs: &[ProcessOutput; 5]) {
    report.assert_consistent();
    report.assert_nothing_lost();
    let [first, second, after_exec, third, parent] = outputs;
    assert_eq!(second.pid, after_exec.pid);
    for child in [first, second, third] {
        let entry = report.entries_of(child.pid)[0];
        assert_eq!(entry.inherited_frees, child.expected.unmatched_frees, "frees of inherited blocks");
        assert_eq!(entry.unmatched_frees, 0);
        assert_eq!(entry.totals.alloc_bytes, child.expected.totals.alloc_bytes);
        assert_eq!(entry.totals.alloc_count, child.expected.totals.alloc_count);
        assert_eq!(entry.totals.free_bytes, child.expected.totals.free_bytes);
        assert_eq!(entry.totals.free_count, child.expected.totals.free_count);
    }
    assert_eq!(report.entries_of(second.pid).len(), 2, "one entry before exec and one after it");
    report.entries_of(after_exec.pid)[1].assert_equals(&after_exec.expected);
    report.entries_of(parent.pid)[0].assert_equals(&parent.expected);
    assert_eq!(report.processes.len(), 5);
}

#[test]
fn children_option_traces_children_of_a_running_process() {
    let mut victim = victim::start("process_tree");
    let tracer = Trace::victim(&victim).option("--children").start();
    let outputs = read_outputs(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    assert_process_tree(&report, &outputs);
}

#[test]
fn children_of_a_running_process_are_excluded_by_default() {
    let mut victim = victim::start("process_tree");
    let tracer = Trace::victim(&victim).start();
    let outputs = read_outputs(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&outputs[4].expected);
}

#[test]
fn children_of_a_command_are_traced_by_default() {
    let command = [PathBuf::from("sh"), "-c".into(), format!("{}; true", victim::path("short_lived").display()).into()];
    let outcome = Trace::command(&command).run();
    let expected: VictimTotals = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
    let report = outcome.report();
    let is_short_lived = |process: &&memtrace_tests::report::ProcessReport| process.comm == "short_lived";
    let child = report.processes.iter().find(is_short_lived).expect("the child of the shell is reported");
    assert_eq!(child.totals, expected.totals.at_exit());
    let alone = Trace::command(&command).option("--no-children").run().report();
    assert!(!alone.processes.iter().any(|process| process.comm == "short_lived"));
}

/// Copies the victim `short_lived` to a unique name.
fn copy_short_lived(scratch: &Scratch, name: &str) -> PathBuf {
    scratch.copy(victim::path("short_lived"), name)
}

/// Starts the trace, and then runs the command, which becomes `short_lived`. Asserts that only this process was traced,
/// from its first instruction.
fn assert_only_command_traced(trace: Trace, command: &mut Command) {
    let tracer = trace.start();
    let output = process::run(command);
    let report = tracer.stop().report();
    let expected: VictimTotals = serde_json::from_str(output.trim()).expect("the totals are valid JSON");
    report.assert_equals(&expected);
}

#[test]
fn comm_selects_a_process_that_starts_later() {
    let scratch = Scratch::new();
    let program = copy_short_lived(&scratch, "mt-by-name");
    assert_only_command_traced(Trace::system_wide().options(&["--comm", "mt-by-name"]), &mut Command::new(program));
}

#[test]
fn exe_selects_a_process_that_starts_later() {
    let scratch = Scratch::new();
    let program = copy_short_lived(&scratch, "mt-by-exe");
    let trace = Trace::system_wide().option("--exe").option(&program);
    assert_only_command_traced(trace, &mut Command::new(program));
}

#[test]
fn user_selects_a_process_that_starts_later() {
    // No other process has this user ID.
    const USER: &str = "54321";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(victim::path("short_lived"));
    assert_only_command_traced(Trace::system_wide().options(&["--user", USER]), &mut command);
}

#[test]
fn cgroup_selects_processes_of_nested_cgroups() {
    let group = Cgroup::new();
    let inner = group.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let procs = inner.join("cgroup.procs");
    let mut command = Command::new("sh");
    let script = format!("echo $$ > {} && exec {}", procs.display(), victim::path("short_lived").display());
    command.args(["-c", &script]);
    let tracer = Trace::system_wide().option("--cgroup").option(group.path()).start();
    let output = process::run(&mut command);
    let report = tracer.stop().report();
    fs::remove_dir(&inner).unwrap();
    report.assert_consistent();
    report.assert_nothing_lost();
    // The shell is in the group too, from its move to its exec.
    let (program, shells): (Vec<_>, Vec<_>) = report.processes.iter().partition(|entry| entry.comm == "short_lived");
    let [program] = program[..] else { panic!("one process: {report:#?}") };
    program.assert_equals(&serde_json::from_str(output.trim()).expect("the totals are valid JSON"));
    assert!(shells.iter().all(|shell| (shell.pid, shell.ended.as_deref()) == (program.pid, Some("exec"))));
}

/// Asserts that the process `pid` is the only reported process with this name, and that it ended without an allocation.
fn assert_idle(report: &Report, comm: &str, pid: u32) {
    let of_name: Vec<_> = report.processes.iter().filter(|process| process.comm == comm).collect();
    let found: Vec<_> = of_name.iter().map(|one| (one.pid, one.ended.as_deref(), one.totals)).collect();
    assert_eq!(found, [(pid, Some("exit"), Totals::default())], "{of_name:#?}");
}

/// Runs a command, and returns its pid.
fn run(command: &mut Command) -> u32 {
    let mut child = command.spawn().expect("the command can be started");
    assert!(child.wait().expect("it is a child").success());
    child.id()
}

#[test]
fn ended_process_without_allocations_is_listed_by_its_user() {
    const USER: u32 = 54341;
    let tracer = Trace::system_wide().options(&["--user", &USER.to_string()]).start();
    let pid = run(Command::new("/bin/true").uid(USER));
    run(Command::new("/bin/true").uid(USER + 1));
    assert_idle(&tracer.stop().report(), "true", pid);
}

#[test]
fn ended_process_without_allocations_is_listed_by_its_exe() {
    let scratch = Scratch::new();
    let [program, other] = ["of", "other"].map(|directory| {
        let path = scratch.subdirectory(directory).join("mt-idle");
        fs::copy("/bin/true", &path).expect("the scratch directory is writable");
        path
    });
    let tracer = Trace::system_wide().option("--exe").option(&program).start();
    let pid = run(&mut Command::new(&program));
    run(&mut Command::new(&other));
    assert_idle(&tracer.stop().report(), "mt-idle", pid);
}

#[test]
fn ended_process_without_allocations_is_listed_by_its_cgroup() {
    let group = Cgroup::new();
    let tracer = Trace::system_wide().option("--cgroup").option(group.path()).start();
    let inner = Cgroup::create_in(group.path());
    let script = format!("echo $$ > {}/cgroup.procs && exec /bin/true", inner.path().display());
    let pid = run(Command::new("sh").args(["-c", &script]));
    run(&mut Command::new("/bin/true"));
    drop(inner);
    assert_idle(&tracer.stop().report(), "true", pid);
}

#[test]
fn exclude_overrides_other_selections() {
    let scratch = Scratch::new();
    let left_out = scratch.copy(victim::path("exact"), "mt-left-out");
    let mut left_out = Victim::start(&mut Command::new(left_out));
    let trace = Trace::system_wide().options(&["--comm", "mt-left-out", "--comm", "mt-left-in"]);
    let tracer = trace.option("--exclude").option(format!("pid={}", left_out.pid())).start();
    left_out.work();
    let output = process::run(&mut Command::new(copy_short_lived(&scratch, "mt-left-in")));
    let report = tracer.stop().report();
    left_out.finish();
    report.assert_equals(&serde_json::from_str(output.trim()).expect("the totals are valid JSON"));
}

#[test]
fn whole_machine_is_traced_except_for_memtrace() {
    let mut victims = [victim::start("exact"), victim::start("realloc")];
    let mut tracer = Trace::system_wide().start();
    let own = tracer.process().pid();
    let expected = victims.each_mut().map(Victim::work);
    let outcome = tracer.stop();
    // Another process may map an allocator that no process mapped before. This counts as a loss.
    let report = outcome.report_with_code(outcome.code.filter(|code| *code == 20).unwrap_or(0));
    for (victim, expected) in victims.iter().zip(&expected) {
        let entries = report.entries_of(victim.pid());
        assert_eq!(entries.len(), 1);
        entries[0].assert_equals(expected);
    }
    assert!(report.entries_of(own).is_empty(), "memtrace traces itself");
    report.assert_consistent();
    victims.into_iter().for_each(Victim::finish);
}

#[test]
fn unknown_user_executable_or_cgroup_is_refused() {
    Trace::system_wide().options(&["--user", "nobody-of-that-name"]).run().assert_refused(3, &["no user"]);
    Trace::system_wide().options(&["--exe", "/no/such/program"]).run().assert_refused(3, &["no executable"]);
    Trace::system_wide().options(&["--cgroup", "no-such.slice"]).run().assert_refused(3, &["no control group"]);
}
