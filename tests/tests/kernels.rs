//! Features that depend on the kernel. These tests pass on every supported release.

use memtrace_tests::{Trace, breakpoints, doctor, victim};

#[test]
fn features_of_every_supported_kernel_are_found() {
    let output = doctor::run();
    for subject in ["type information", "uprobes", "ring buffers", "control groups"] {
        assert_eq!(output.findings_on(subject)[0].verdict, "ok", "{output:#?}");
    }
}

#[test]
fn bpf_programs_load_and_probes_hit() {
    let output = doctor::run();
    for subject in ["release", "BPF programs", "probes"] {
        assert_eq!(output.findings_on(subject)[0].verdict, "ok", "{output:#?}");
    }
    assert_eq!(output.code, Some(0), "{output:#?}");
}

#[test]
fn target_is_traced_exactly() {
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
    victim.finish();
}

#[test]
fn mapped_files_are_identified_by_build_id() {
    let output = doctor::run();
    let finding = output.findings_on("perf mmap events")[0];
    assert_eq!((&*finding.verdict, &*finding.detail), ("ok", "files are identified by build ID"));
}

/// Since Linux 7.0, a BPF program at a tracepoint can be preempted. Then another task on the same CPU skips the
/// program.
#[test]
fn no_exec_or_exit_is_missed_under_preemption() {
    const PROCESSES: usize = 100;
    let script = format!(
        "i=0; while [ $i -lt {PROCESSES} ]; do /bin/sh -c : & i=$((i+1)); [ $((i % 8)) = 0 ] && wait; done; wait"
    );
    let outcome = Trace::command(["/bin/sh", "-c", &script]).run();
    let report = outcome.report();
    report.assert_nothing_lost();
    let ended = |how: &str| report.processes.iter().filter(|one| one.ended.as_deref() == Some(how)).count();
    // Each process is a fork of the shell, and calls exec. The shell itself exits too.
    assert_eq!((ended("exec"), ended("exit")), (PROCESSES, PROCESSES + 1));
}
