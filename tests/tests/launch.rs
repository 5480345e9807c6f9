//! Commands that memtrace starts are traced from their first instruction.

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::{CountShim, Overlay, Scratch, Trace, Tracer, VictimTotals, process, victim};

/// Parses the totals that a command printed.
fn parse_totals(output: &str) -> VictimTotals {
    serde_json::from_str(output).expect("the command printed its totals")
}

/// Sends a signal to a process that runs.
fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("a pid fits into pid_t");
    // SAFETY: kill has no conditions.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{}", std::io::Error::last_os_error());
}

/// Returns the pid that a command prints after `prefix`.
fn read_pid(tracer: &mut Tracer, prefix: &str) -> u32 {
    let line = tracer.process().read_line();
    line.strip_prefix(prefix).and_then(|pid| pid.parse().ok()).expect("the command printed its pid")
}

#[test]
fn held_static_programs_are_traced_from_first_instruction() {
    let program = victim::path("short_lived.musl_static");
    // Only the first one has to wait for probes.
    let script = format!("{0} && {0}; exit 9", program.display());
    let outcome = Trace::command(["sh", "-c", &script]).options(&["--hold-exec", "--exit-code"]).run();
    let report = outcome.report_with_code(9);
    report.assert_nothing_lost();
    report.assert_consistent();
    let expected: Vec<_> = outcome.stdout.lines().map(parse_totals).collect();
    let programs: Vec<_> = report.processes.iter().filter(|process| process.comm == "short_lived.mus").collect();
    assert_eq!((programs.len(), expected.len()), (2, 2), "{programs:#?}");
    // Both print the same totals, so their order does not matter.
    for (program, expected) in programs.into_iter().zip(&expected) {
        program.assert_equals(expected);
    }
}

#[test]
fn static_program_that_is_not_held_counts_as_late() {
    let script = format!("{}; true", victim::path("short_lived.musl_static").display());
    let outcome = Trace::command(["sh", "-c", &script]).run();
    outcome.report_with_code(20).assert_only_lost(LossReason::AllocatorLate, 1);
    assert!(outcome.stderr.contains("--hold-exec"), "{}", outcome.stderr);
}

#[test]
fn held_command_continues_when_memtrace_is_killed() {
    let mut tracer = Trace::command([victim::path("exact")]).option("--hold-exec").start();
    let pid = read_pid(&mut tracer, "ready ");
    tracer.process().signal(libc::SIGKILL);
    process::wait_for_file(pid, "status", |status| status.contains("TracerPid:\t0\n"), "lose its tracer");
    tracer.process().write_line("");
    assert!(parse_totals(&tracer.process().read_line()).totals.alloc_count > 0);
    tracer.process().write_line("");
    assert_eq!(tracer.wait().code, None);
}

#[test]
fn held_command_continues_when_the_trace_ends() {
    let mut tracer = Trace::command([victim::path("exact")]).option("--hold-exec").start();
    let pid = read_pid(&mut tracer, "ready ");
    tracer.process().write_line("");
    let expected = parse_totals(&tracer.process().read_line());
    tracer.process().signal(libc::SIGINT);
    assert!(tracer.process().wait_for_stderr_line("memtrace: stopped"));
    process::wait_for_file(pid, "status", |status| status.contains("TracerPid:\t0\n"), "lose its tracer");
    tracer.process().write_line("");
    let report = tracer.wait().report();
    report.assert_nothing_lost();
    assert!(report.totals.alloc_count >= expected.totals.alloc_count, "{:?}", report.totals);
}

#[test]
fn held_command_can_be_stopped_and_continued() {
    let script = "echo pid $$; kill -STOP $$; exit 3";
    let mut tracer = Trace::command(["sh", "-c", script]).options(&["--hold-exec", "--exit-code"]).start();
    let pid = read_pid(&mut tracer, "pid ");
    process::wait_for_file(pid, "stat", |stat| stat.contains(") t "), "stop");
    signal(pid, libc::SIGCONT);
    tracer.wait().assert_code(3);
}

#[test]
fn held_command_can_start_ten_thousand_threads() {
    let command = [victim::path("thread_churn").into_os_string(), "10000".into()];
    let mut tracer = Trace::command(command).option("--hold-exec").start();
    read_pid(&mut tracer, "ready ");
    tracer.process().write_line("");
    assert!(tracer.process().read_line().starts_with('['));
    tracer.process().write_line("");
    tracer.wait().report().assert_nothing_lost();
}

#[test]
fn command_is_traced_from_first_instruction_to_exit() {
    let outcome = Trace::command([victim::path("short_lived")]).run();
    let report = outcome.report();
    report.assert_equals(&parse_totals(&outcome.stdout));
    assert_eq!(report.processes[0].ended.as_deref(), Some("exit"));
    assert_eq!(report.processes[0].comm, "short_lived");
    let before_main: u64 = report
        .stacks
        .iter()
        .filter(|stack| stack.names().contains(&"before_main"))
        .map(|stack| stack.totals.alloc_bytes)
        .sum();
    assert_eq!(before_main, 123);
}

#[test]
fn command_of_the_working_directory_is_traced_from_first_instruction() {
    let scratch = Scratch::new();
    scratch.copy(victim::path("short_lived"), "program");
    let directory = scratch.path("").to_string_lossy().into_owned();
    let outcome = Trace::command(["./program"]).wrapped_in(&["env", "-C", &directory]).run();
    outcome.report().assert_equals(&parse_totals(&outcome.stdout));
}

#[test]
fn command_on_overlayfs_is_traced_from_first_instruction() {
    let overlay = Overlay::mount();
    let outcome = Trace::command([overlay.program(&victim::path("short_lived"), "on_overlay")]).run();
    let report = outcome.report();
    report.assert_equals(&parse_totals(&outcome.stdout));
    report.assert_all_end("complete");
}

#[test]
fn exec_by_a_command_is_traced_from_first_instruction() {
    let command = ["env".into(), "HUGO=1".into(), victim::path("short_lived").into_os_string()];
    let outcome = Trace::command(command).run();
    let report = outcome.report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let last = report.processes.last().expect("a process is reported");
    assert_eq!(last.comm, "short_lived");
    last.assert_equals(&parse_totals(&outcome.stdout));
}

/// At thread exit, glibc frees the tcache, and count_shim cannot see this free. With an empty tcache, it is one
/// repeated free per thread.
#[test]
fn libc_blocks_of_short_lived_threads_are_recorded() {
    const THREADS: u64 = 200;
    let scratch = Scratch::new();
    let counts = CountShim::create(&scratch);
    counts.begin();
    let mut command = vec!["env".into(), "GLIBC_TUNABLES=glibc.malloc.tcache_count=0".into()];
    for (name, value) in counts.environment() {
        let mut variable = std::ffi::OsString::from(format!("{name}="));
        variable.push(value);
        command.push(variable);
    }
    command.push(victim::path("thread_burst").into_os_string());
    // The library that `env` preloads has probes before it is mapped.
    let report = Trace::command(command).run().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let recorded = counts.read();
    assert!(recorded.totals.alloc_count > THREADS * 3, "{recorded:?}");
    assert_eq!(report.repeated_frees, THREADS);
    report.processes.last().expect("a process is reported").assert_equals(&recorded);
}

#[test]
fn libraries_that_a_shell_preloads_have_probes_before_they_are_mapped() {
    let scratch = Scratch::new();
    let counts = CountShim::create(&scratch);
    counts.begin();
    let assignments: Vec<_> = counts
        .environment()
        .into_iter()
        .map(|(name, value)| format!("{name}='{}'", std::path::Path::new(&value).display()))
        .collect();
    let text = format!("{} {}; true", assignments.join(" "), victim::path("short_lived").display());
    let report = Trace::command(["sh", "-c", &text]).run().report();
    report.assert_nothing_lost();
    let recorded = counts.read();
    assert!(recorded.totals.alloc_count > 0, "{recorded:?}");
    let mut traced = report.processes.iter().filter(|process| process.comm == "short_lived");
    traced.next_back().expect("a process is reported").assert_equals(&recorded);
}

#[test]
fn exit_code_option_returns_the_code_of_the_command() {
    let command = || [victim::path("short_lived").into_os_string(), "7".into()];
    Trace::command(command()).run().assert_code(0);
    let outcome = Trace::command(command()).option("--exit-code").run();
    outcome.report_with_code(7).assert_equals(&parse_totals(&outcome.stdout));
}

#[test]
fn command_runs_without_the_privileges_of_sudo() {
    let outcome = Trace::command(["id", "-u"])
        .environment("SUDO_UID", "65534")
        .environment("SUDO_GID", "65534")
        .environment("SUDO_USER", "nobody")
        .run();
    outcome.assert_code(0);
    assert_eq!(outcome.stdout, "65534");
}
