//! Processes that begin or cease to match a selection without an exec, and the user and cgroup of ended processes.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_tests::report::ProcessReport;
use memtrace_tests::{Cgroup, MemoryCgroup, Report, Scratch, Trace, Victim, VictimTotals, process, victim};
use serde::Deserialize;

/// First of the user IDs that no other process has.
const FIRST_USER: u32 = 54321;

/// Starts a victim that can change to `user`. Tests that run at the same time have different users.
fn start_for(user: u32) -> Victim {
    victim::start_with("changes", &[&user.to_string()])
}

/// Output of the victim after a command.
#[derive(Debug, Deserialize)]
struct Output {
    pid: u32,
    #[serde(flatten)]
    expected: VictimTotals,
}

/// Makes the victim execute a command. The victim reaches a barrier afterwards.
fn command(victim: &mut Victim, command: &str) -> Output {
    victim.process().write_line(command);
    victim.read_json()
}

fn finish(mut victim: Victim) {
    victim.process().wait();
}

/// Asserts that only the victim was traced, and only while it was selected.
fn assert_traced(report: &Report, expected: &VictimTotals) {
    assert!(expected.totals.alloc_count > 0 && expected.unmatched_frees > 0, "{expected:?}");
    report.assert_equals(expected);
}

#[test]
fn user_selects_a_process_from_its_setuid_on() {
    const USER: u32 = FIRST_USER + 1;
    let mut victim = start_for(USER);
    let tracer = Trace::system_wide().options(&["--user", &USER.to_string()]).start();
    command(&mut victim, "b");
    command(&mut victim, "u");
    let expected = command(&mut victim, "s").expected;
    let report = tracer.stop().report();
    finish(victim);
    assert_traced(&report, &expected);
    assert_eq!(report.processes[0].uid, Some(USER));
}

#[test]
fn frees_are_recorded_after_a_setuid_that_ends_the_selection() {
    const USER: u32 = FIRST_USER + 2;
    let scratch = Scratch::new();
    // No other process has the name of this copy.
    let program = scratch.copy(victim::path("changes"), "mt-drops");
    let mut victim = Victim::start(Command::new(program).arg(USER.to_string()));
    let trace = Trace::system_wide().options(&["--comm", "mt-drops", "--exclude", &format!("user={USER}")]);
    command(&mut victim, "b");
    let tracer = trace.start();
    command(&mut victim, "s");
    command(&mut victim, "u");
    let expected = command(&mut victim, "a").expected;
    let report = tracer.stop().report();
    finish(victim);
    assert_traced(&report, &expected);
}

#[test]
fn comm_selects_a_process_while_it_has_that_name() {
    let mut victim = start_for(FIRST_USER);
    let tracer = Trace::system_wide().options(&["--comm", "mt-new-name"]).start();
    command(&mut victim, "b");
    command(&mut victim, "n");
    command(&mut victim, "s");
    command(&mut victim, "o");
    let expected = command(&mut victim, "a").expected;
    let report = tracer.stop().report();
    finish(victim);
    assert_traced(&report, &expected);
}

/// Asserts that a victim that moves into `group` and out of it is traced only while it is in the cgroup.
fn assert_traced_in_cgroup(group: &Cgroup) {
    let mut victim = start_for(FIRST_USER);
    let tracer = Trace::system_wide().option("--cgroup").option(group.path()).start();
    command(&mut victim, "b");
    group.add_process(victim.pid());
    command(&mut victim, "s");
    let outside = group.path().parent().expect("it is not the root").join("cgroup.procs");
    fs::write(outside, victim.pid().to_string()).expect("the victim can be moved");
    let expected = command(&mut victim, "a").expected;
    let report = tracer.stop().report();
    finish(victim);
    assert_traced(&report, &expected);
}

#[test]
fn cgroup_selects_a_process_while_it_is_in_there() {
    assert_traced_in_cgroup(&Cgroup::new());
}

#[test]
fn memory_cgroup_selects_a_process_while_it_is_in_there() {
    assert_traced_in_cgroup(&MemoryCgroup::with_memory(1 << 30));
}

#[test]
fn private_allocator_is_traced_after_a_move_into_the_cgroup() {
    let group = Cgroup::new();
    let mut victim = victim::start("victim-rust-jemalloc");
    let tracer = Trace::system_wide().option("--cgroup").option(group.path()).start();
    group.add_process(victim.pid());
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
}

/// Waits until a worker has exited. The worker prints its ledger before it exits, and the victim
/// reads its next command after that.
fn wait_for_exit_of_worker(victim: &mut Victim) {
    command(victim, "b");
}

#[test]
fn forked_worker_is_selected_after_its_setuid() {
    const USER: u32 = FIRST_USER + 3;
    let mut victim = start_for(USER);
    let tracer = Trace::system_wide().options(&["--user", &USER.to_string()]).start();
    let worker = command(&mut victim, "f");
    wait_for_exit_of_worker(&mut victim);
    let report = tracer.stop().report();
    finish(victim);
    report.assert_nothing_lost();
    let [entry] = &report.processes[..] else { panic!("one process: {:#?}", report.processes) };
    assert_eq!(entry.pid, worker.pid);
    assert_eq!(entry.totals, worker.expected.totals.at_exit());
    assert_eq!(entry.inherited_frees, worker.expected.unmatched_frees);
    assert_eq!((entry.uid, entry.ended.as_deref()), (Some(USER), Some("exit")));
}

#[test]
fn short_lived_worker_has_the_user_at_its_exit() {
    const USER: u32 = FIRST_USER + 4;
    let mut victim = start_for(USER);
    let tracer = Trace::victim(&victim).option("--children").start();
    let workers = [command(&mut victim, "f"), command(&mut victim, "f")];
    wait_for_exit_of_worker(&mut victim);
    let report = tracer.stop().report();
    let parent = victim.pid();
    finish(victim);
    let users = |pid| report.entries_of(pid).iter().map(|entry| entry.uid).collect::<Vec<_>>();
    for worker in &workers {
        assert_eq!(users(worker.pid), [Some(USER)]);
    }
    assert_eq!(users(parent), [Some(0)]);
}

/// Copies of `true` and `echo`, with names that no other process has.
struct Programs {
    scratch: Scratch,
    names: [String; 2],
}

impl Programs {
    fn copy(suffix: &str) -> Self {
        let scratch = Scratch::new();
        let names = ["true", "echo"].map(|name| {
            let own = format!("mt-{name}-{suffix}");
            scratch.copy(PathBuf::from("/bin").join(name), &own);
            own
        });
        // Another user must be able to run the copies.
        process::run(Command::new("chmod").arg("755").arg(&*scratch));
        Self { scratch, names }
    }

    /// Runs each executable `count` times in a cgroup, as another user.
    fn run(&self, count: usize, group: &Path) {
        let [first, second] = self.names.each_ref().map(|name| self.scratch.join(name));
        let loop_ = format!(
            "i=0; while [ $i -lt {count} ]; do {} --version & {} x & wait; i=$((i+1)); done",
            first.display(),
            second.display()
        );
        let procs = group.join("cgroup.procs");
        let procs = procs.to_str().expect("the path is text").to_owned();
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            &format!("echo $$ > {procs} && exec setpriv --reuid {FIRST_USER} --clear-groups sh -c '{loop_}'"),
        ]);
        process::run(shell.process_group(0));
    }
}

/// Asserts the owners of many short-lived processes in a cgroup that is removed before the trace
/// ends.
fn assert_owners_of_short_lived_processes(group: Cgroup, suffix: &str) {
    const COUNT: usize = 150;
    let programs = Programs::copy(suffix);
    let path = format!("/{}", group.path().file_name().expect("it has a name").to_string_lossy());
    let [first, second] = &programs.names;
    let tracer = Trace::system_wide().options(&["--comm", first, "--comm", second, "--by", "cgroup"]).start();
    programs.run(COUNT, group.path());
    drop(group);
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    for name in &programs.names {
        let of_name: Vec<&ProcessReport> = report.processes.iter().filter(|process| process.comm == *name).collect();
        assert_eq!(of_name.len(), COUNT, "{name}");
        for process in of_name {
            assert_eq!(process.cgroup.as_deref(), Some(&*path), "{process:#?}");
            assert_eq!((process.uid, process.ended.as_deref()), (Some(FIRST_USER), Some("exit")), "{process:#?}");
        }
    }
    assert_eq!(report.roots.iter().map(|root| &root.name).collect::<Vec<_>>(), [&path]);
}

#[test]
fn short_lived_processes_have_their_cgroup() {
    assert_owners_of_short_lived_processes(Cgroup::new(), "v2");
}

#[test]
fn short_lived_processes_have_their_memory_cgroup() {
    let parent = MemoryCgroup::with_memory(1 << 30);
    assert_owners_of_short_lived_processes(
        Cgroup::create_in(parent.path().parent().expect("it is not the root")),
        "mem",
    );
}
