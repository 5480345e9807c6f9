//! Processes that cannot be traced are refused or listed with the reason.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_tests::report::UntracedProcess;
use memtrace_tests::{Cgroup, MemoryCgroup, Report, Scratch, Trace, Victim, VictimTotals, process, victim};

const NO_ALLOCATOR: i32 = 6;
const UNTRACEABLE: i32 = 8;

/// Error of a program without a traced allocator.
const NO_TRACED_ALLOCATOR: &str = "has no allocator that memtrace knows; examined: ";

/// Victims that cannot be traced, with the texts of the error, and the name of the reason in reports. `bare.go` has the note of
/// Go's linker, but neither a runtime nor the build information that has its version.
const UNTRACED: [(&str, [&str; 2], &str); 4] = [
    ("bare", [NO_TRACED_ALLOCATOR, "does not define malloc"], "no_allocator"),
    ("bare.32", [NO_TRACED_ALLOCATOR, "32 bits"], "architecture"),
    ("bare.go", ["has neither an allocator nor a heap profile", "its build information was removed"], "go_version"),
    ("family.stripped_pie", [NO_TRACED_ALLOCATOR, "statically linked and stripped"], "stripped"),
];

/// Copies a victim to a file named `comm`, in a directory of its own. `--comm` then selects the
/// victim.
fn copy(scratch: &Scratch, name: &str, comm: &str) -> PathBuf {
    let path = scratch.subdirectory(&format!("of-{name}")).join(comm);
    fs::copy(victim::path(name), &path).expect("a victim can be copied");
    path
}

fn start(path: &Path) -> Victim {
    Victim::start(Command::new(path).arg("100"))
}

/// Starts a victim without arguments. `bare` would execute an argument.
fn start_alone(path: &Path) -> Victim {
    Victim::start(&mut Command::new(path))
}

/// Returns the RSS of a process that waits at its barrier, as the kernel reports it.
fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the victim runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has an RSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Returns the expected entry of a running victim.
fn entry(victim: &Victim, path: &Path, reason: &str) -> UntracedProcess {
    UntracedProcess {
        pid: victim.pid(),
        comm: path.file_name().map(|name| name.to_string_lossy().into_owned().into()).unwrap_or_default(),
        exe: Some(path.to_string_lossy().into_owned().into()),
        reason: reason.to_owned().into(),
        rss_bytes: Some(rss(victim.pid())),
    }
}

/// Asserts that the sums of the report equal the sums of its list.
fn assert_sums(report: &Report) {
    let untraced = &report.untraced;
    assert_eq!(untraced.total.count, untraced.processes.len() as u64);
    assert_eq!(
        untraced.total.rss_bytes,
        untraced.processes.iter().filter_map(|process| process.rss_bytes).sum::<u64>()
    );
    for (name, memory) in &untraced.reasons {
        let with_reason = || untraced.processes.iter().filter(|process| process.reason == *name);
        assert_eq!(memory.count, with_reason().count() as u64, "{name}");
        assert_eq!(memory.rss_bytes, with_reason().filter_map(|process| process.rss_bytes).sum::<u64>(), "{name}");
    }
}

/// Returns true if a process runs this executable.
fn runs(path: &Path) -> bool {
    let file = fs::metadata(path).expect("the executable exists");
    let processes = fs::read_dir("/proc").expect("/proc can be read");
    let mut executables = processes.filter_map(|entry| fs::metadata(entry.ok()?.path().join("exe")).ok());
    executables.any(|exe| (exe.dev(), exe.ino()) == (file.dev(), file.ino()))
}

#[test]
fn untraceable_command_is_refused_like_its_pid() {
    let scratch = Scratch::new();
    for (name, [error, reason], _) in UNTRACED {
        let path = copy(&scratch, name, name);
        let shown = if error == NO_TRACED_ALLOCATOR { format!("{}: ", path.display()) } else { String::new() };
        let outcome = Trace::command([path.as_os_str(), OsStr::new("1")]).run();
        outcome.assert_refused(NO_ALLOCATOR, &[error, &shown, reason]);
        assert_eq!(outcome.stdout, "", "the command ran");
        assert!(!runs(&path), "{name} was left behind");
        let victim = start(&path);
        let outcome = Trace::victim(&victim).run();
        outcome.assert_refused(NO_ALLOCATOR, &[error, &shown, reason]);
    }
}

#[test]
fn untraceable_command_is_traced_if_no_allocator_is_needed() {
    let path = victim::path("bare.go");
    let mut tracer = Trace::command([path]).options(&["--events", "fault"]).start();
    tracer.process().read_line();
    tracer.process().write_line("");
    let report = tracer.wait().report();
    let process = report.processes.last().expect("a process is reported");
    assert_eq!(process.comm, "bare.go");
    assert!(process.totals.alloc_count > 0, "it touches pages");
    assert_eq!(report.untraced.total.count, 0);
}

#[test]
fn script_with_an_untraceable_child_is_traced() {
    let scratch = Scratch::new();
    let script = scratch.join("script");
    let lines = ["#!/bin/sh", "echo | \"$1\" >&2", "\"$2\"", "exit 0"];
    fs::write(&script, lines.join("\n")).expect("the scratch directory is writable");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("the script is ours");
    let (bare, short_lived) = (victim::path("bare.32"), victim::path("short_lived"));
    let outcome = Trace::command([script.as_os_str(), bare.as_os_str(), short_lived.as_os_str()]).run();
    let report = outcome.report();
    let expected: VictimTotals = serde_json::from_str(outcome.stdout.trim()).expect("the totals are valid JSON");
    let traced =
        report.processes.iter().find(|process| process.comm == "short_lived" && process.totals.alloc_count > 0);
    traced.expect("the other child is traced").assert_equals(&expected);
    assert_sums(&report);
    let [child] = report.untraced.processes.as_slice() else { panic!("{:?}", report.untraced) };
    assert_eq!((&*child.comm, &*child.reason, child.rss_bytes), ("bare.32", "architecture", None));
}

#[test]
fn untraced_processes_of_a_selection_are_listed() {
    const COMM: &str = "mt-mixed";
    let scratch = Scratch::new();
    let mut traced = start(&copy(&scratch, "steady", COMM));
    let mut expected = Vec::new();
    let mut victims = Vec::new();
    for (name, _, reason) in UNTRACED {
        let path = copy(&scratch, name, COMM);
        let victim = start(&path);
        expected.push(entry(&victim, &path, reason));
        victims.push(victim);
    }
    let mut tracer = Trace::system_wide().options(&["--comm", COMM]).start_without_waiting();
    let is_attached = |line: &str| line.starts_with("attached") && line.ends_with(" probes, 4 processes not traced");
    assert!(tracer.process().wait_for_stderr(is_attached), "the number of untraced processes is not shown");
    let totals = traced.work();
    let outcome = tracer.stop();
    let report = outcome.report();
    report.entries_of(traced.pid())[0].assert_equals(&totals);
    assert_sums(&report);
    expected.sort_by_key(|process| (std::cmp::Reverse(process.rss_bytes), process.pid));
    assert_eq!(report.untraced.processes, expected);
    assert!(outcome.stderr.contains("Not traced: 4 processes, "), "{}", outcome.stderr);
}

#[test]
fn process_that_starts_during_the_trace_is_listed() {
    const COMM: &str = "mt-later";
    let scratch = Scratch::new();
    let (short, long) = (copy(&scratch, "bare.32", COMM), copy(&scratch, "bare.go", COMM));
    let tracer = Trace::system_wide().options(&["--comm", COMM]).start();
    let mut ended = start_alone(&short);
    let expected = UntracedProcess { rss_bytes: None, ..entry(&ended, &short, "architecture") };
    ended.process().write_line("");
    assert!(ended.process().wait().success());
    let victim = start(&long);
    let outcome = tracer.stop();
    let report = outcome.report_with_code(NO_ALLOCATOR);
    assert_eq!(report.untraced.processes, [entry(&victim, &long, "go_version"), expected]);
    assert!(outcome.stderr.contains(&format!("the largest is {COMM} ({})", victim.pid())), "{}", outcome.stderr);
}

/// Releases a victim from its barrier, and returns its expected entry in a report after its end.
fn end(mut victim: Victim, path: &Path, reason: &str) -> UntracedProcess {
    let entry = UntracedProcess { rss_bytes: None, ..entry(&victim, path, reason) };
    victim.process().write_line("");
    assert!(victim.process().wait().success());
    entry
}

/// Asserts that exactly these processes are listed.
fn assert_listed(report: &Report, mut expected: Vec<UntracedProcess>) {
    expected.sort_by_key(|process| process.pid);
    assert_eq!(report.untraced.processes, expected);
    assert_sums(report);
}

/// Victims that end by themselves, and the names of their reasons with [`EXACT`].
const ENDING: [(&str, &str); 2] = [("bare.32", "architecture"), ("bare.go", "go")];

/// Without this option, the reason of a Go program that ends depends on whether its profile was looked for.
const EXACT: [&str; 2] = ["--source", "exact"];

/// Copies the victims that end by themselves.
fn copy_ending(scratch: &Scratch, comm: &str) -> [(PathBuf, &'static str); 2] {
    ENDING.map(|(name, reason)| (copy(scratch, name, comm), reason))
}

fn start_as(path: &Path, user: u32) -> Victim {
    Victim::start(Command::new(path).uid(user))
}

#[test]
fn ended_processes_are_listed_by_their_user() {
    const USER: u32 = 54331;
    let scratch = Scratch::new();
    let victims = copy_ending(&scratch, "mt-of-user");
    let tracer = Trace::system_wide().options(&EXACT).options(&["--user", &USER.to_string()]).start();
    let mut expected = Vec::new();
    for (path, reason) in &victims {
        expected.push(end(start_as(path, USER), path, reason));
        end(start_as(path, USER + 1), path, reason);
    }
    assert_listed(&tracer.stop().report_with_code(NO_ALLOCATOR), expected);
}

#[test]
fn ended_processes_of_an_excluded_user_are_not_listed() {
    const COMM: &str = "mt-excluded";
    const USER: u32 = 54333;
    let scratch = Scratch::new();
    let victims = copy_ending(&scratch, COMM);
    let trace = Trace::system_wide().options(&["--comm", COMM, "--exclude", &format!("user={USER}")]);
    let tracer = trace.options(&EXACT).start();
    let mut expected = Vec::new();
    for (path, reason) in &victims {
        expected.push(end(start_alone(path), path, reason));
        end(start_as(path, USER), path, reason);
    }
    assert_listed(&tracer.stop().report_with_code(NO_ALLOCATOR), expected);
}

#[test]
fn ended_processes_are_listed_by_their_executable() {
    let scratch = Scratch::new();
    let victims = copy_ending(&scratch, "mt-of-exe");
    let [(first, _), (second, _)] = &victims;
    let trace = Trace::system_wide().option("--exe").option(first).option("--exe").option(second);
    let tracer = trace.options(&EXACT).start();
    let mut expected = Vec::new();
    for (path, reason) in &victims {
        expected.push(end(start_alone(path), path, reason));
        let other = path.with_file_name("other");
        fs::copy(path, &other).expect("a victim can be copied");
        end(start_alone(&other), &other, reason);
    }
    assert_listed(&tracer.stop().report_with_code(NO_ALLOCATOR), expected);
}

/// Traces the cgroup `group`. Victims end in the cgroup itself, and in a child cgroup that is removed before the trace
/// ends.
fn assert_listed_by_cgroup(group: &Cgroup, name: &str) {
    let scratch = Scratch::new();
    let victims = copy_ending(&scratch, name);
    let outside = Cgroup::create_in(group.path().parent().expect("it is not the root"));
    let tracer = Trace::system_wide().option("--cgroup").option(group.path()).options(&EXACT).start();
    let inner = Cgroup::create_in(group.path());
    let mut expected = Vec::new();
    for (path, reason) in &victims {
        for (place, is_inside) in [(group, true), (&inner, true), (&outside, false)] {
            let victim = start_alone(path);
            place.add_process(victim.pid());
            let entry = end(victim, path, reason);
            expected.extend(is_inside.then_some(entry));
        }
        // The last cgroup of a process counts.
        let victim = start_alone(path);
        inner.add_process(victim.pid());
        outside.add_process(victim.pid());
        end(victim, path, reason);
    }
    drop(inner);
    assert_listed(&tracer.stop().report_with_code(NO_ALLOCATOR), expected);
}

#[test]
fn ended_processes_are_listed_by_their_cgroup() {
    assert_listed_by_cgroup(&Cgroup::new(), "mt-of-group");
}

#[test]
fn ended_processes_are_listed_by_their_memory_cgroup() {
    assert_listed_by_cgroup(&MemoryCgroup::with_memory(1 << 30), "mt-of-memcg");
}

#[test]
fn process_that_memtrace_may_not_read_is_listed() {
    const USER: u32 = 54335;
    let scratch = Scratch::new();
    let path = copy(&scratch, "bare", "mt-unreadable");
    let victim = start_as(&path, USER);
    let dropped = "-sys_ptrace";
    let trace = Trace::system_wide().wrapped_in(&["setpriv", "--bounding-set", dropped, "--inh-caps", dropped]);
    let outcome = trace.options(&["--user", &USER.to_string()]).start().stop();
    // On some kernels, memtrace can read the mappings of the victim with CAP_PERFMON instead of CAP_SYS_PTRACE.
    let reason = if outcome.code == Some(NO_ALLOCATOR) { "no_allocator" } else { "unreadable" };
    let report = outcome.report_with_code(if reason == "unreadable" { UNTRACEABLE } else { NO_ALLOCATOR });
    assert_listed(&report, vec![UntracedProcess { exe: None, ..entry(&victim, &path, reason) }]);
}

#[test]
fn process_with_files_that_memtrace_may_not_open_is_listed() {
    const USER: u32 = 54336;
    let scratch = Scratch::new();
    let path = copy(&scratch, "bare", "mt-private");
    let directory = path.parent().expect("it is in a directory");
    process::run(Command::new("chown").args(["-R", &format!("{USER}:{USER}")]).arg(directory));
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).expect("root may change the mode");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).expect("root may change the mode");
    let victim = start_as(&path, USER);
    let dropped = "-dac_override,-dac_read_search";
    let trace = Trace::system_wide().wrapped_in(&["setpriv", "--bounding-set", dropped, "--inh-caps", dropped]);
    let tracer = trace.options(&["--user", &USER.to_string()]).start();
    let expected = entry(&victim, &path, "unreadable");
    assert_listed(&tracer.stop().report_with_code(UNTRACEABLE), vec![expected]);
}

#[test]
fn process_is_traced_after_exec_of_a_traceable_file() {
    const COMM: &str = "mt-becomes";
    let scratch = Scratch::new();
    let (bare, steady) = (copy(&scratch, "bare.32", COMM), copy(&scratch, "short_lived", COMM));
    let mut victim = Victim::start(Command::new(bare).arg(steady));
    let tracer = Trace::system_wide().options(&["--comm", COMM]).start();
    let totals = victim.work();
    assert!(victim.process().wait().success());
    let report = tracer.stop().report();
    report.entries_of(victim.pid()).last().expect("it is traced").assert_equals(&totals);
    assert_eq!(report.untraced.processes, []);
}

#[test]
fn process_is_listed_after_exec_of_an_untraceable_file() {
    let bare = victim::path("bare.go");
    let mut tracer = Trace::command(["env".as_ref(), bare.as_os_str()]).options(&EXACT).start();
    tracer.process().read_line();
    tracer.process().write_line("");
    let report = tracer.wait().report();
    assert_eq!(report.processes[0].comm, "env");
    let [listed] = report.untraced.processes.as_slice() else { panic!("{:?}", report.untraced) };
    assert_eq!((&*listed.comm, &*listed.reason), ("bare.go", "go"));
}

#[test]
fn selection_without_a_process_is_refused_or_has_a_note() {
    const NO_PROCESS: i32 = 3;
    let trace = || Trace::system_wide().options(&["--comm", "mt-no-such", "-d", "1ms"]);
    trace()
        .without_waiting()
        .run()
        .assert_refused(NO_PROCESS, &["the processes of command mt-no-such do not run", "--wait"]);
    let kernel_thread = Trace::system_wide().options(&["--comm", "kthreadd"]);
    kernel_thread.without_waiting().run().assert_refused(UNTRACEABLE, &["it is the kernel thread kthreadd"]);
    let report = trace().run().report_with_code(NO_PROCESS);
    // An earlier memtrace may still remove its probes.
    let notes: Vec<_> = report.notes.iter().filter(|note| !note.contains("of other memtraces")).collect();
    assert_eq!(notes, ["no process matched the selection"]);
    assert_eq!(report.untraced.total.count, 0);
}

#[test]
fn mappings_of_a_32_bit_process_are_not_traced() {
    for (name, untraced) in [("bare.32", 1), ("bare.go", 0)] {
        let victim = start(&victim::path(name));
        let outcome = Trace::victim(&victim).options(&["--events", "map"]).start().stop();
        let report = outcome.report_with_code(if untraced > 0 { NO_ALLOCATOR } else { 0 });
        assert_eq!(report.untraced.total.count, untraced, "{name}");
    }
}
