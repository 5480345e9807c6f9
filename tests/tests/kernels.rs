//! Features that depend on the kernel. These tests pass on every supported release.

use memtrace_tests::kernel::{BUILD_IDS, FIND_VMA, version};
use memtrace_tests::{Trace, Victim, breakpoints, doctor, victim};

const KERNEL: i32 = 5;

/// BPF cookies (`bpf_get_attach_cookie`, include/uapi/linux/bpf.h).
const COOKIES: (u32, u32) = (5, 15);

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
fn missing_features_name_the_release_that_adds_them() {
    let output = doctor::run();
    for (subject, since, named) in [("VMA lookup", FIND_VMA, "5.17"), ("BPF cookies", COOKIES, "5.15")] {
        let finding = output.findings_on(subject)[0];
        if version() >= since {
            assert_eq!((&*finding.verdict, finding.remedy.as_deref()), ("ok", None), "{finding:#?}");
        } else {
            let remedy = format!("boot Linux {named} or newer");
            assert_eq!((&*finding.verdict, finding.remedy.as_deref()), ("warn", Some(&*remedy)), "{finding:#?}");
        }
    }
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

/// Asserts that the trace works since a release, and is refused without touching the victim before it.
fn assert_available_since(since: (u32, u32), trace: Trace, victim: &mut Victim, words: &str) {
    if version() >= since {
        let tracer = trace.start();
        let expected = victim.work();
        tracer.stop().report().assert_equals(&expected);
    } else {
        trace.run().assert_refused(KERNEL, &[words, "memtrace doctor"]);
        assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
        victim.work();
    }
}

#[test]
fn by_allocator_requires_linux_5_15() {
    let mut victim = victim::start("exact");
    let trace = Trace::victim(&victim).options(&["--by", "allocator"]);
    assert_available_since(COOKIES, trace, &mut victim, "requires Linux 5.15");
    victim.finish();
}

#[test]
fn mapped_files_are_identified_by_build_id_since_linux_5_12() {
    let output = doctor::run();
    let finding = output.findings_on("perf mmap events")[0];
    let expected = if version() >= BUILD_IDS {
        ("ok", "files are identified by build ID")
    } else {
        ("warn", "files are identified by device and inode: on overlayfs and btrfs some frames will have no name")
    };
    assert_eq!((&*finding.verdict, &*finding.detail), expected);
}

/// Since Linux 7.0, a BPF program at a tracepoint can be preempted, and another task on the same CPU then skips it.
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
    // Each process is a fork of the shell that calls exec. The shell itself exits too.
    assert_eq!((ended("exec"), ended("exit")), (PROCESSES, PROCESSES + 1));
}
