//! Processes that memtrace does not patch: not one byte of them changes.

use std::io;
use std::ptr;

use memtrace_tests::breakpoints;
use memtrace_tests::uprobe::Uprobe;

use super::*;

/// Debian's tcmalloc, for `LD_PRELOAD`.
const TCMALLOC: &str = "libtcmalloc_minimal.so.4";

/// Asserts that memtrace refuses to patch the target with these words, and changes nothing. `doctor` says so beforehand.
fn assert_refused(mut target: Target, words: &[&str]) {
    let output = doctor::run_through(&[], &tracer::binary(), Some(target.pid()));
    let findings = output.findings_on("patching");
    let is_reason = |detail: &str| words.iter().all(|word| detail.to_lowercase().contains(word));
    let refused = findings.iter().filter(|finding| finding.verdict == "warn").any(|finding| is_reason(&finding.detail));
    assert!(refused, "{words:?} are not in {findings:#?}");
    let outcome = Trace::victim(&target.victim).options(EACH).run();
    outcome.assert_code(UNTRACEABLE);
    assert!(!outcome.stderr.lines().any(|line| line.starts_with("attached")), "{}", outcome.stderr);
    assert!(is_reason(&outcome.stderr), "{words:?} are not in {}", outcome.stderr);
    target.assert_untouched();
    target.victim.work();
    target.victim.finish();
}

#[test]
fn other_allocators_are_refused() {
    for (library, word) in [(TCMALLOC, "tcmalloc"), (MIMALLOC, "mimalloc")] {
        assert_refused(Target::with("patch_steps", &["100"], Some(library)), &[word]);
    }
}

#[test]
fn musl_is_refused() {
    assert_refused(Target::with("exact.musl", &[], None), &["musl"]);
}

#[test]
fn static_executables_are_refused() {
    assert_refused(Target::with("family.static", &["100"], None), &["static"]);
}

#[test]
fn seccomp_filters_that_refuse_the_calls_are_refused() {
    for filter in ["memfd", "exec"] {
        assert_refused(Target::with("patch_steps", &["100", filter], None), &["seccomp"]);
    }
}

#[test]
fn seccomp_filter_that_permits_the_calls_is_no_obstacle() {
    let mut target = Target::with("patch_steps", &["1000", "loose"], None);
    let tracer = target.trace(EACH);
    let expected = target.victim.work();
    tracer.stop().report().assert_equals(&expected);
    target.finish();
}

/// Makes this thread the tracer of a process, which runs on. The process loses it when the thread ends.
fn seize(pid: u32) {
    let pid = i32::try_from(pid).expect("a pid fits into pid_t");
    // SAFETY: the request takes no pointers.
    let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

#[test]
fn process_with_a_debugger_is_refused() {
    let target = Target::steps();
    seize(target.pid());
    assert_refused(target, &["trace"]);
}

#[test]
fn foreign_breakpoint_at_a_site_is_refused() {
    let target = Target::steps();
    let pid = target.pid();
    let tracer = target.trace(EACH);
    let sites = patches(pid);
    tracer.stop().assert_code(0);
    target.finish();
    let [first, .., last] = &sites[..] else { panic!("{sites:?}") };
    for site in [first, last] {
        let mut target = Target::steps();
        let pid = target.pid();
        let file = library(pid, "libc.so.6");
        assert_eq!(site.path, file.to_string_lossy());
        let probe = Uprobe::place(&file, site.offset, Some(pid));
        let text = Text::of(pid);
        let outcome = Trace::victim(&target.victim).options(EACH).run();
        outcome.assert_code(UNTRACEABLE);
        Text::of(pid).assert_same(&text);
        assert_eq!(breakpoints::list(pid), [site.to_string()], "{}", outcome.stderr);
        target.victim.work();
        drop(probe);
        target.assert_untouched();
        target.clear();
        // The same process without the probe is patched.
        assert_each_is_a_sample(&mut target);
        target.finish();
    }
}

/// Traces each allocation by a patch, and compares the totals with the target's own.
fn assert_each_is_a_sample(target: &mut Target) {
    let tracer = target.trace(EACH);
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    assert_eq!(only_entry(&report, target.pid()).totals, expected.totals);
}

#[test]
fn stub_that_another_process_has_locked_is_refused() {
    const REASON: &str = "locked";
    let mut target = Target::steps();
    let pid = target.pid();
    kill(target.trace(EACH));
    let changed = Text::of(pid);
    let functions = patches(pid).len();
    assert!(functions >= 4, "{functions}");
    let lock = PatchStub::of(pid).lock();
    let output = doctor::run_through(&[], &tracer::binary(), Some(pid));
    let findings = output.findings_on("patching");
    assert!(
        findings.iter().any(|finding| finding.verdict == "warn" && finding.detail.contains(REASON)),
        "{findings:#?}"
    );
    let refused = Trace::victim(&target.victim).options(EACH).run();
    refused.assert_code(UNTRACEABLE);
    assert!(refused.stderr.contains(REASON), "{}", refused.stderr);
    let refused = detach(pid);
    assert_eq!(refused.status.code(), Some(UNTRACEABLE), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains(REASON), "{}", text(&refused.stderr));
    Text::of(pid).assert_same(&changed);
    target.clear();
    target.victim.work();
    drop(lock);
    target.clear();
    assert_each_is_a_sample(&mut target);
    target.finish();
}

#[test]
fn samples_without_permission_change_no_code() {
    let mut target = Target::steps();
    let mut tracer = Trace::victim(&target.victim).options(&["--sample-interval", "64"]).start_without_waiting();
    if tracer.process().wait_for_stderr_line("attached") {
        target.assert_untouched();
        target.victim.work();
        tracer.process().signal(libc::SIGINT);
    }
    let outcome = tracer.wait();
    assert!(outcome.stderr.contains("--allow-patching"), "{}", outcome.stderr);
    target.assert_untouched();
    target.victim.work();
    target.victim.finish();
}

#[test]
fn exact_trace_and_own_samples_change_no_code() {
    for options in [&["--source", "exact"][..], &["--source", "own"], &[]] {
        let mut target = Target::steps();
        let mut tracer = Trace::victim(&target.victim).options(options).start_without_waiting();
        if tracer.process().wait_for_stderr_line("attached") {
            // Breakpoints at most: any other difference from the files is a failure.
            let _ = breakpoints::list(target.pid());
            assert_eq!(PatchStub::list(target.pid()).len(), 0);
            target.victim.work();
            tracer.process().signal(libc::SIGINT);
        }
        let _ = tracer.wait();
        breakpoints::wait_until_removed(target.pid());
        target.assert_untouched();
        target.victim.work();
        target.victim.finish();
    }
}
