//! If a file system does not answer, memtrace waits for two seconds for each of a few files, and does without these files.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::explain::explain;
use memtrace_tests::process::{children, run};
use memtrace_tests::working_set::{Measurement, wss};
use memtrace_tests::{Outcome, Scratch, Trace, Tracer, Victim, poll, victim};

use super::{USER, child_named, status_field};

/// Time limit from SIGINT to the end of memtrace.
const END: Duration = Duration::from_secs(10);
/// Time limit for attaching. The files of a user can cost four waits of two seconds.
const ATTACH: Duration = Duration::from_secs(20);
/// Exit code of a trace with losses.
const LOST: i32 = 20;
/// Exit code for a process that cannot be traced.
const UNTRACEABLE: i32 = 8;

/// A process that serves a FUSE file system, and has mapped a file of this file system (`victims/fuse.c`).
struct Serving {
    victim: Victim,
    _scratch: Scratch,
}

impl Serving {
    fn start() -> Self {
        Self::with(|command| command.arg(victim::path("exact")))
    }

    fn with(options: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let scratch = Scratch::new();
        let directory = scratch.subdirectory("mount");
        let mut command = Command::new(victim::path("fuse"));
        let mut victim = Victim::start(options(command.arg(directory)));
        victim.work();
        Self { victim, _scratch: scratch }
    }

    /// Makes the file system hang. `victims/fuse.c` describes the modes.
    fn hang(&mut self) {
        self.victim.work();
    }
}

fn attach(trace: Trace) -> Tracer {
    let start = Instant::now();
    let tracer = trace.start();
    let time = start.elapsed();
    assert!(time < ATTACH, "memtrace attached after {time:?}");
    tracer
}

fn end(tracer: Tracer) -> Outcome {
    let start = Instant::now();
    let outcome = tracer.stop();
    let time = start.elapsed();
    assert!(time < END, "memtrace ended after {time:?}");
    outcome
}

/// Traces a process that has mapped a file of a hanging file system, and another process that must stay exact. `trace`:
/// returns a trace of both pids.
fn assert_other_stays_exact(trace: impl FnOnce([u32; 2]) -> Trace) {
    let mut serving = Serving::start();
    serving.hang();
    let mut other = victim::start("exact");
    let tracer = attach(trace([serving.victim.pid(), other.pid()]));
    let expected = other.work();
    let outcome = end(tracer);
    serving.victim.finish();
    let report = outcome.report_with_code(LOST);
    assert!(report.loss_count(LossReason::FileTimeout) > 0, "{:?}", report.losses);
    let [process] = report.entries_of(other.pid())[..] else { panic!("not one entry: {:#?}", report.processes) };
    process.assert_equals(&expected);
    other.finish();
}

#[test]
fn mapped_file_that_does_not_answer_costs_itself() {
    assert_other_stays_exact(|pids| Trace::pids(&pids));
}

#[test]
fn file_system_that_hangs_does_not_hold_a_trace_of_the_machine() {
    assert_other_stays_exact(|_| Trace::system_wide());
}

#[test]
fn file_system_that_hangs_during_a_trace_does_not_hold_its_end() {
    let mut serving = Serving::start();
    let tracer = attach(Trace::victim(&serving.victim));
    serving.hang();
    let outcome = end(tracer);
    serving.victim.finish();
    assert!([Some(0), Some(LOST)].contains(&outcome.code), "{:?} {}", outcome.code, outcome.stderr);
}

#[test]
fn futex_in_a_page_that_never_arrives_does_not_hold_the_end_of_a_trace() {
    let mut serving =
        Serving::with(|command| command.arg(victim::binaries().join("victim-rust-jemalloc")).arg("no-pages"));
    let tracer = attach(Trace::victim(&serving.victim).options(&["--min-wait", "1ms"]));
    serving.hang();
    let outcome = end(tracer);
    serving.victim.finish();
    let report = outcome.report_with_code(LOST);
    assert!(report.loss_count(LossReason::FileTimeout) > 0, "{:?}", report.losses);
}

/// Starts a process with a child that hangs in exec. The kernel then holds locks of the child. Returns the pid of the child
/// too.
fn start_exec_that_hangs() -> (Serving, u32) {
    let mut serving = Serving::with(|command| command.arg(victim::path("exact")).arg("exec"));
    serving.hang();
    // The first child is the server.
    let child = *children(serving.victim.pid()).last().expect("it has children");
    (serving, child)
}

#[test]
fn process_that_hangs_in_exec_does_not_hold_a_trace() {
    let (serving, child) = start_exec_that_hangs();
    let mut other = victim::start("exact");
    let tracer = attach(Trace::system_wide());
    let expected = other.work();
    let outcome = end(tracer);
    serving.victim.finish();
    let report = outcome.report_with_code(LOST);
    assert!(report.loss_count(LossReason::FileTimeout) > 0, "{:?}", report.losses);
    let untraced: Vec<_> = report.untraced.processes.iter().filter(|process| process.pid == child).collect();
    assert!(matches!(untraced[..], [process] if process.reason == "unreadable"), "{:?}", report.untraced);
    let [process] = report.entries_of(other.pid())[..] else { panic!("not one entry: {:#?}", report.processes) };
    process.assert_equals(&expected);
    other.finish();
}

#[test]
fn process_that_hangs_out_of_scope_is_no_loss() {
    let (serving, _) = start_exec_that_hangs();
    let mut other = victim::start("exact");
    let tracer = attach(Trace::system_wide().options(&["--comm", "exact"]));
    let expected = other.work();
    let outcome = end(tracer);
    serving.victim.finish();
    let report = outcome.report();
    assert_eq!(report.loss_count(LossReason::FileTimeout), 0, "{:?}", report.losses);
    let [process] = report.entries_of(other.pid())[..] else { panic!("not one entry: {:#?}", report.processes) };
    process.assert_equals(&expected);
    other.finish();
}

#[test]
fn process_that_hangs_in_exec_is_refused() {
    let (serving, child) = start_exec_that_hangs();
    Trace::pids(&[child]).run().assert_refused(UNTRACEABLE, &["it holds a lock of its memory"]);
    let output = explain(["--pid", &child.to_string()]);
    assert_eq!(output.status.code(), Some(UNTRACEABLE));
    serving.victim.finish();
}

#[test]
fn process_that_holds_the_lock_of_its_memory_map_is_refused() {
    let mut serving = Serving::with(|command| command.arg(victim::path("exact")).arg("remap"));
    serving.hang();
    let pid = serving.victim.pid().to_string();
    let start = Instant::now();
    let output = explain(["--pid", &pid]);
    assert_eq!(output.status.code(), Some(UNTRACEABLE), "{}", String::from_utf8_lossy(&output.stderr));
    let output = wss(&["--pid", &pid, "300ms"]);
    assert_eq!(output.status.code(), Some(UNTRACEABLE), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(start.elapsed() < END, "memtrace ended after {:?}", start.elapsed());
    serving.victim.finish();
}

#[test]
fn process_that_locks_its_memory_map_while_it_is_measured_is_named() {
    let mut serving = Serving::with(|command| command.arg(victim::path("exact")).arg("remap"));
    let pid = serving.victim.pid().to_string();
    let mut measurement = Measurement::start(&["--pid", &pid, "--cumulative", "300ms", "--format", "json"]);
    // The files of the process are open by now.
    measurement.next_reading();
    let start = Instant::now();
    serving.hang();
    let (code, stderr) = measurement.finish();
    assert!(start.elapsed() < END, "memtrace ended after {:?}", start.elapsed());
    serving.victim.finish();
    assert_eq!(code, Some(LOST), "{stderr}");
    assert!(stderr.contains("1 process could not be read to the end"), "{stderr}");
}

#[test]
fn touched_pages_of_a_process_that_locks_its_memory_map_are_reported() {
    let mut serving = Serving::with(|command| command.arg(victim::path("exact")).arg("remap"));
    let pid = serving.victim.pid();
    let tracer = attach(Trace::victim(&serving.victim).options(&["--events", "fault"]));
    serving.hang();
    let report = end(tracer).report_with_code(LOST);
    serving.victim.finish();
    assert!(report.lost().contains_key(LossReason::FileTimeout.name()), "{:?}", report.lost());
    // The page tables, which show what is resident, cannot be read. The process has touched the stack of a new thread.
    let [process] = report.entries_of(pid)[..] else { panic!("not one entry: {:#?}", report.processes) };
    assert!(process.totals.live_bytes > 0, "{process:?}");
}

#[test]
fn process_that_waits_for_file_systems_can_only_read_files() {
    // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (include/uapi/linux/capability.h).
    const READS: &str = "0000000000000006";
    let mut serving = Serving::start();
    let mut tracer = attach(Trace::victim(&serving.victim));
    let child = child_named("memtrace", tracer.process().pid()).expect("a file was served");
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(status_field(child, set), READS, "{set}");
    }
    assert_eq!(status_field(child, "NoNewPrivs:"), "1");
    serving.hang();
    assert_eq!(end(tracer).code, Some(0));
    serving.victim.finish();
}

#[test]
fn work_of_more_than_a_second_before_the_trace_is_shown() {
    let mut serving = Serving::start();
    serving.hang();
    let is_shown = |options: &[&str]| {
        let outcome = end(attach(Trace::victim(&serving.victim).options(options)));
        let mut lines = outcome.stderr.lines().take_while(|line| !line.starts_with("attached "));
        lines.any(|line| line == "memtrace: reading processes")
    };
    // Each wait for a file takes two seconds.
    assert!(is_shown(&[]));
    assert!(!is_shown(&["-q"]));
    serving.victim.finish();
}

#[test]
fn signal_while_memtrace_waits_for_a_file_ends_it() {
    let mut serving = Serving::start();
    serving.hang();
    let mut tracer = Trace::victim(&serving.victim).start_without_waiting();
    // The server of files is the first child, and starts when the first file is looked up.
    let children = format!("/proc/{0}/task/{0}/children", tracer.process().pid());
    poll::until(|| match fs::read_to_string(&children) {
        Ok(text) if text.is_empty() => Err(text),
        other => Ok(other),
    })
    .expect("memtrace runs");
    let outcome = end(tracer);
    serving.victim.finish();
    let report = outcome.report_with_code(LOST);
    assert!(report.loss_count(LossReason::FileTimeout) > 0, "{:?}", report.losses);
}

/// Time limit for a fork on a busy machine.
const FORK: Duration = Duration::from_secs(1);

/// Pause between two forks.
const PAUSE: Duration = Duration::from_millis(5);

/// Calls `work` while shells fork. Returns its result, and the longest run time of a shell.
fn while_forking<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let forks = scope.spawn(|| {
            let (begin, mut longest) = (Instant::now(), Duration::ZERO);
            while !is_done.load(Ordering::Relaxed) && begin.elapsed() < ATTACH {
                let start = Instant::now();
                // The start of the shell copies no memory map, so it does not wait (vfork(2)). The shell forks.
                run(Command::new("sh").args(["-c", "true & wait"]));
                longest = longest.max(start.elapsed());
                // While memtrace waits for a lock, faster forks would fill the rings of mappings: a loss of its own.
                thread::sleep(PAUSE);
            }
            longest
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        (result, forks.join().expect("the thread ends"))
    })
}

#[test]
fn file_with_pages_that_never_arrive_gets_no_probes() {
    let mut serving =
        Serving::with(|command| command.arg(victim::binaries().join("victim-rust-jemalloc")).arg("no-pages"));
    let mut other = victim::start("exact");
    // While the kernel waits for a page to insert a probe, no process can fork.
    let pids = [serving.victim.pid(), other.pid()];
    let (tracer, longest) = while_forking(|| attach(Trace::pids(&pids)));
    assert!(longest < FORK, "a fork took {longest:?}");
    serving.hang();
    let expected = other.work();
    let outcome = end(tracer);
    serving.victim.finish();
    let report = outcome.report_with_code(LOST);
    let is_refusal = |note: &str| note.contains("/object has no probes: a user serves the file");
    assert!(report.notes.iter().any(|note| is_refusal(note)), "{:?}", report.notes);
    let [process] = report.entries_of(other.pid())[..] else { panic!("not one entry: {:#?}", report.processes) };
    process.assert_equals(&expected);
    other.finish();
}

/// Time in seconds until the server ends, which releases the lock of the memory map. If memtrace waits for the lock, all
/// forks of the machine wait too.
const LOCK: &str = "6";

/// The same for a lock that memtrace does not wait for at its end.
const LONG_LOCK: &str = "40";

/// Time from SIGINT to the end of memtrace if a lock is held for longer than memtrace waits, which is 10 s.
const END_WITH_LOCK: Duration = Duration::from_secs(18);

/// Starts a process that maps the C library, and holds the lock of its memory map for `seconds` after [`Serving::hang`].
fn start_lock_holder(seconds: &str) -> Serving {
    Serving::with(|command| command.arg(victim::path("exact")).args(["remap", seconds]))
}

fn holder(serving: &Serving) -> String {
    format!("process {} ", serving.victim.pid())
}

#[test]
fn no_trace_begins_while_a_process_holds_the_lock_of_its_memory_map() {
    let mut serving = start_lock_holder(LOCK);
    let mut other = victim::start("exact");
    serving.hang();
    let trace = Trace::victim(&other).options(&["--duration", "1s"]);
    let (outcome, longest) = while_forking(|| trace.run());
    assert!(longest < FORK, "a fork took {longest:?}");
    outcome.assert_refused(UNTRACEABLE, &[&holder(&serving), "holds the lock of its memory map", "findmnt"]);
    serving.victim.finish();
    other.work();
    other.finish();
}

#[test]
fn probes_are_removed_after_the_lock_of_a_memory_map_is_released() {
    let mut serving = start_lock_holder(LOCK);
    let mut other = victim::start("exact");
    let tracer = attach(Trace::victim(&other));
    let expected = other.work();
    serving.hang();
    let (outcome, longest) = while_forking(|| end(tracer));
    assert!(longest < FORK, "a fork took {longest:?}");
    let note = format!("the removal of the probes waits, because {}", holder(&serving));
    assert!(outcome.stderr.contains(&note), "{}", outcome.stderr);
    outcome.report().assert_equals(&expected);
    serving.victim.finish();
    other.finish();
}

/// Returns the processes with the name of the thread that starts reapers, except zombies, which have no command line.
fn reapers() -> Vec<u32> {
    let read = |pid: u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let pids =
        fs::read_dir("/proc").expect("procfs").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| read(pid, "comm") == "detach\n" && !read(pid, "cmdline").is_empty()).collect()
}

#[test]
fn reaper_removes_probes_after_a_lock_that_memtrace_does_not_wait_for() {
    let mut serving = start_lock_holder(LONG_LOCK);
    let mut other = victim::start("exact");
    let tracer = attach(Trace::victim(&other));
    let expected = other.work();
    assert!(reapers().is_empty(), "of an earlier test");
    serving.hang();
    let name = holder(&serving);
    let ((outcome, waiting), longest) = while_forking(|| {
        let start = Instant::now();
        let outcome = tracer.stop();
        let time = start.elapsed();
        assert!(time < END_WITH_LOCK, "memtrace ended after {time:?}");
        let waiting = reapers();
        // The end of the server releases the lock.
        serving.victim.finish();
        poll::until(|| match reapers() {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        });
        (outcome, waiting)
    });
    assert!(longest < FORK, "a fork took {longest:?}");
    assert_eq!(waiting.len(), 1, "{waiting:?} {}", outcome.stderr);
    let words = outcome.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let note = format!("a process of memtrace removes the others when {name}");
    assert!(words.contains(&note), "{words}");
    outcome.report().assert_equals(&expected);
    other.finish();
}

#[test]
fn instruction_that_the_kernel_cannot_probe_costs_its_calls_only() {
    // The kernel cannot decode the first instruction on x86-64, and cannot step it on arm64.
    const ALLOCATOR: &str = r#"
        __asm__(".text\n.globl malloc\n.type malloc, %function\nmalloc:\n"
        #ifdef __x86_64__
                ".byte 0x66, 0x0f, 0x38, 0x18, 0xc0\n"
        #else
                "hlt #0\n"
        #endif
                "ret\n.size malloc, . - malloc\n");
        void free(void *block) { (void)block; }"#;
    let scratch = Scratch::new();
    let library = scratch.compile("gcc", "library.so", ALLOCATOR, &["-shared", "-fPIC", "-nostdlib"]);
    let mut hostile = victim::start_with("hostile", &[library.to_str().expect("UTF-8")]);
    let mut other = victim::start("exact");
    let tracer = attach(Trace::system_wide());
    let expected = other.work();
    hostile.work();
    let outcome = end(tracer);
    hostile.finish();
    let report = outcome.report_with_code(LOST);
    let is_refusal =
        |note: &str| note.contains("/library.so + ") && note.contains("the kernel refuses one at this instruction");
    assert!(report.notes.iter().any(|note| is_refusal(note)), "{:?}", report.notes);
    let [process] = report.entries_of(other.pid())[..] else { panic!("not one entry: {:#?}", report.processes) };
    process.assert_equals(&expected);
    other.finish();
}

#[test]
fn late_allocator_is_probed_after_the_lock_of_a_memory_map_is_released() {
    const NAME: &str = "mt-late-lock";
    let scratch = Scratch::new();
    // The executable is static. The probes of a mapped C library would record the start of the program.
    let program = scratch.copy(victim::path("family.static"), NAME);
    let mut serving = start_lock_holder(LOCK);
    let mut tracer = attach(Trace::system_wide().options(&["--comm", NAME]));
    serving.hang();
    let (mut late, longest) = while_forking(|| {
        let late = Victim::start(Command::new(&program).arg("100"));
        let postponed = format!("no probes yet, because {}", holder(&serving));
        assert!(tracer.process().wait_for_stderr(|line| line.contains(&postponed)), "the probes are not postponed");
        assert!(tracer.process().wait_for_stderr(|line| line.contains("probed from now on")), "no second attempt");
        late
    });
    assert!(longest < FORK, "a fork took {longest:?}");
    let (pid, expected) = (late.pid(), late.work());
    let report = end(tracer).report_with_code(LOST);
    serving.victim.finish();
    late.finish();
    report.assert_only_lost(LossReason::AllocatorLate, 1);
    let is_count = |note: &str| note.contains("the probes of 1 allocator were postponed");
    assert!(report.notes.iter().any(|note| is_count(note)), "{:?}", report.notes);
    let [process] = report.entries_of(pid)[..] else { panic!("not one entry: {:#?}", report.processes) };
    assert_eq!(process.totals, expected.totals);
}

#[test]
fn program_in_an_overlay_that_a_user_has_mounted_is_exact() {
    const OVERLAY: &str = "mount -t overlay none -o \"lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work\" \"$0/root\" \
        && exec \"$0/root/program\"";
    let scratch = Scratch::new();
    for name in ["lower", "upper", "work", "root"] {
        let directory = scratch.subdirectory(name);
        std::os::unix::fs::chown(&directory, Some(USER), Some(USER)).expect("the test runs as root");
    }
    scratch.copy(victim::binaries().join("victim-rust-jemalloc"), "lower/program");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", OVERLAY]).arg(scratch.path(""));
    let mut victim = Victim::start(command.uid(USER).gid(USER));
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
}
