//! Selection of the traced processes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use memtrace_tests::{Cgroup, Report, Scratch, Trace, Victim, VictimTotals, process, victim};
use serde::Deserialize;

/// Output of one process of the tree.
#[derive(Debug, Deserialize)]
struct Relative {
    pid: u32,
    #[serde(flatten)]
    books: VictimTotals,
}

/// Output of `process_tree`: three children, the second of which calls exec, and the parent.
fn relatives(victim: &mut Victim) -> [Relative; 5] {
    victim.process().write_line("");
    [(); 5].map(|()| serde_json::from_str(&victim.process().read_line()).expect("books"))
}

/// Asserts that the totals of each process match, with frees of inherited blocks counted separately.
fn assert_family(report: &Report, relatives: &[Relative; 5]) {
    report.assert_consistent();
    report.assert_nothing_lost();
    let [first, second, after_exec, third, parent] = relatives;
    assert_eq!(second.pid, after_exec.pid);
    for child in [first, second, third] {
        let program = report.entries_of(child.pid)[0];
        assert_eq!(program.inherited_frees, child.books.unmatched_frees, "frees of what it had from its parent");
        assert_eq!(program.unmatched_frees, 0);
        assert_eq!(program.totals.alloc_bytes, child.books.totals.alloc_bytes);
        assert_eq!(program.totals.alloc_count, child.books.totals.alloc_count);
        assert_eq!(program.totals.free_bytes, child.books.totals.free_bytes);
        assert_eq!(program.totals.free_count, child.books.totals.free_count);
    }
    assert_eq!(report.entries_of(second.pid).len(), 2, "a program before exec and one behind it");
    report.entries_of(after_exec.pid)[1].assert_equals(&after_exec.books);
    report.entries_of(parent.pid)[0].assert_equals(&parent.books);
    assert_eq!(report.processes.len(), 5);
}

#[test]
fn children_option_traces_children_of_a_running_process() {
    let mut victim = victim::start("process_tree");
    let tracer = Trace::victim(&victim).option("--children").start();
    let told = relatives(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    assert_family(&report, &told);
}

#[test]
fn children_of_a_running_process_are_excluded_by_default() {
    let mut victim = victim::start("process_tree");
    let tracer = Trace::victim(&victim).start();
    let told = relatives(&mut victim);
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&told[4].books);
}

#[test]
fn children_of_a_command_are_traced_by_default() {
    let command = [PathBuf::from("sh"), "-c".into(), format!("{}; true", victim::path("short_lived").display()).into()];
    let outcome = Trace::command(&command).run();
    let books: VictimTotals = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
    let report = outcome.report();
    let named = |process: &&memtrace_tests::report::ProcessReport| process.comm == "short_lived";
    let child = report.processes.iter().find(named).expect("the shell's child");
    assert_eq!(child.totals, books.totals);
    let alone = Trace::command(&command).option("--no-children").run().report();
    assert!(!alone.processes.iter().any(|process| process.comm == "short_lived"));
}

/// Copies the victim `short_lived` to a unique name.
fn named(scratch: &Scratch, name: &str) -> PathBuf {
    scratch.program(&victim::path("short_lived"), name)
}

/// Starts the trace, then runs the command, which becomes `short_lived`. Asserts that this process alone was traced,
/// from its first instruction.
fn joined(trace: Trace, command: &mut Command) {
    let tracer = trace.start();
    let output = process::run(command);
    let report = tracer.stop().report();
    let books: VictimTotals = serde_json::from_str(output.trim()).expect("books");
    report.assert_equals(&books);
}

#[test]
fn comm_selects_a_process_that_starts_later() {
    let scratch = Scratch::new();
    let program = named(&scratch, "mt-by-name");
    joined(Trace::system_wide().options(&["--comm", "mt-by-name"]), &mut Command::new(program));
}

#[test]
fn exe_selects_a_process_that_starts_later() {
    let scratch = Scratch::new();
    let program = named(&scratch, "mt-by-exe");
    let trace = Trace::system_wide().option("--exe").option(&program);
    joined(trace, &mut Command::new(program));
}

#[test]
fn user_selects_a_process_that_starts_later() {
    // No other process has this user ID.
    const USER: &str = "54321";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(victim::path("short_lived"));
    joined(Trace::system_wide().options(&["--user", USER]), &mut command);
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
    joined(Trace::system_wide().option("--cgroup").option(group.path()), &mut command);
    fs::remove_dir(&inner).unwrap();
}

#[test]
fn exclude_overrides_other_selections() {
    let scratch = Scratch::new();
    let left_out = scratch.program(&victim::path("exact"), "mt-left-out");
    let mut left_out = Victim::start(&mut Command::new(left_out));
    let trace = Trace::system_wide().options(&["--comm", "mt-left-out", "--comm", "mt-left-in"]);
    let tracer = trace.option("--exclude").option(format!("pid={}", left_out.pid())).start();
    left_out.work();
    let books = process::run(&mut Command::new(named(&scratch, "mt-left-in")));
    let report = tracer.stop().report();
    left_out.finish();
    report.assert_equals(&serde_json::from_str(books.trim()).expect("books"));
}

#[test]
fn all_processes_except_memtrace_are_traced_by_default() {
    let mut victims = [victim::start("exact"), victim::start("realloc")];
    let mut tracer = Trace::system_wide().start();
    let own = tracer.process().pid();
    let books = victims.each_mut().map(Victim::work);
    let outcome = tracer.stop();
    // Another process may map an allocator that was not known before, which counts as a loss.
    let report = outcome.report_with_code(outcome.code.filter(|code| *code == 20).unwrap_or(0));
    for (victim, books) in victims.iter().zip(&books) {
        let programs = report.entries_of(victim.pid());
        assert_eq!(programs.len(), 1);
        programs[0].assert_equals(books);
    }
    assert!(report.entries_of(own).is_empty(), "memtrace traces itself");
    report.assert_consistent();
    victims.into_iter().for_each(Victim::finish);
}

#[test]
fn unknown_user_executable_or_cgroup_is_refused() {
    Trace::system_wide().options(&["--user", "nobody-of-that-name"]).run().assert_refused(3, &["no user"]);
    Trace::system_wide().options(&["--exe", "/no/such/program"]).run().assert_refused(3, &["no program"]);
    Trace::system_wide().options(&["--cgroup", "no-such.slice"]).run().assert_refused(3, &["no control group"]);
}
