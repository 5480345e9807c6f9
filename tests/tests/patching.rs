//! Samples of allocators whose code memtrace has patched. The victims count their blocks. At an interval of one byte,
//! each block of a victim is a sample, so its numbers equal the numbers in the report.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

mod alone;
mod faults;
mod long;
mod other_tracers;
mod page_faults;
mod processes;
mod refusals;
mod threads;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::fixtures::GLIBC;
use memtrace_json::{Numbers, PatchedProcess};
use memtrace_object::overlay::layout::{LARGE, SAMPLES};
use memtrace_tests::bytes_of_text::{Text, patches};
use memtrace_tests::patch_stub::PatchStub;
use memtrace_tests::patch_zoo::JEMALLOC;
use memtrace_tests::report::ProcessReport;
use memtrace_tests::{
    Report, Scratch, Stack, Totals, Trace, Tracer, Victim, VictimTotals, doctor, poll, process, recording_report,
    tracer, victim,
};

const UNTRACEABLE: i32 = 8;
/// Events were lost.
const LOST: i32 = 20;

/// Debian's mimalloc, for `LD_PRELOAD`.
const MIMALLOC: &str = "libmimalloc.so.2";

/// Options of a trace that samples each block of 23 bytes or more: at an interval of one byte, a draw has at most 22
/// bytes.
const EACH: &[&str] = &["--sample-interval", "1", "--allow-patching", "--ring-size", "64MiB"];

/// Number of standard deviations. An unbiased estimate from 200 samples or more is off by as many in less than one of a million cases.
const DEVIATIONS: f64 = 6.0;

/// A victim that can be patched.
struct Target {
    victim: Victim,
    /// Code before the trace.
    text: Text,
    /// Folder of its allocator.
    _folder: Option<Scratch>,
}

impl Target {
    fn start(command: &mut Command) -> Self {
        let victim = Victim::start(command);
        victim.wait_until_reading_stdin();
        let text = Text::of(victim.pid());
        Self { victim, text, _folder: None }
    }

    /// Starts the victim `name` with a copy of an allocator's library; `None` for glibc. The file itself can have probes of exact
    /// traces in other tests, at the same instructions in jemalloc.
    fn with(name: &str, arguments: &[&str], preloaded: Option<&str>) -> Self {
        let mut command = Command::new(victim::path(name));
        command.args(arguments);
        let folder = preloaded.map(|library| {
            let folder = Scratch::new();
            command.env("LD_PRELOAD", folder.copy(Path::new(GLIBC).with_file_name(library), library));
            folder
        });
        Self { _folder: folder, ..Self::start(&mut command) }
    }

    /// Starts the victim `patch_steps` with 3000 steps for each line.
    fn steps() -> Self {
        Self::with("patch_steps", &["3000"], None)
    }

    fn pid(&self) -> u32 {
        self.victim.pid()
    }

    /// Starts a trace of the victim, and waits until it is patched.
    fn trace(&self, options: &[&str]) -> Tracer {
        Trace::victim(&self.victim).options(options).start()
    }

    /// Writes a line to the victim, and reads its totals.
    fn answer(&mut self, line: &str) -> VictimTotals {
        self.victim.process().write_line(line);
        self.victim.read_totals()
    }

    /// Makes the victim forget its totals and blocks.
    fn clear(&mut self) {
        self.victim.process().write_line("clear");
        assert_eq!(self.victim.process().read_line(), "{}");
    }

    /// Asserts that the code is the same as before the trace, and that no function uses the stub, which stays mapped.
    fn assert_restored(&self) {
        Text::of(self.pid()).assert_same(&self.text);
        assert_eq!(PatchStub::list(self.pid()).len(), 1);
    }

    /// Asserts that the process has neither changed code nor a stub.
    fn assert_untouched(&self) {
        Text::of(self.pid()).assert_same(&self.text);
        assert_eq!(PatchStub::list(self.pid()).len(), 0, "a stub is mapped");
    }

    /// Ends the victim after a trace that has restored its code.
    fn finish(self) {
        self.assert_restored();
        self.victim.finish();
    }
}

/// Returns the facts of a patched process.
#[track_caller]
fn patched(report: &Report, pid: u32) -> &PatchedProcess<'static> {
    let found = report.content.patched_processes.iter().find(|patched| patched.pid == pid);
    found.unwrap_or_else(|| panic!("process {pid} is not in {:#?}", report.content.patched_processes))
}

/// Returns the entry of a process.
#[track_caller]
fn only_entry(report: &Report, pid: u32) -> &ProcessReport {
    let [process] = report.entries_of(pid)[..] else { panic!("not one entry: {:#?}", report.processes) };
    process
}

/// Returns the samplers in a report, with their intervals.
fn samplers(report: &Report) -> Vec<(&str, Option<u64>)> {
    report.samplers.iter().map(|sampler| (&*sampler.source, sampler.interval_bytes)).collect()
}

/// Returns the sum of the stacks with the function `name` as leaf.
fn of_leaf(report: &Report, name: &str) -> Totals {
    report.stacks_with_leaf(name).map(|stack| stack.totals).sum()
}

/// Asserts that the stacks of each site of a victim have its totals. Other blocks, as of the dynamic linker, do not count.
fn assert_sites(report: &Report, source: &str, expected: &VictimTotals) {
    assert!(!expected.sites.is_empty());
    for site in &expected.sites {
        report.assert_site(source, site);
    }
}

/// Runs `memtrace detach`.
fn detach(pid: u32) -> Output {
    let mut command = Command::new(tracer::binary());
    command.args(["detach", "--pid", &pid.to_string()]).output().expect("memtrace detach starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until process `pid` has patches. Returns their number.
fn wait_until_patched(pid: u32) -> usize {
    poll::until(|| match patches(pid).len() {
        0 => Err(format!("process {pid} is not patched")),
        count => Ok(count),
    })
}

/// Waits until no thread of process `pid` has a tracer.
fn wait_until_untraced(pid: u32) {
    let is_traced = |status: &str| !status.contains("TracerPid:\t0\n");
    poll::until(|| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs").filter_map(Result::ok);
        // A thread may have ended.
        let statuses = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        let traced = statuses.filter(|status| is_traced(status)).count();
        if traced == 0 { Ok(()) } else { Err(format!("{traced} threads of process {pid} have a tracer")) }
    });
}

/// Kills memtrace, and waits for its end. The victim stays patched.
fn kill(mut tracer: Tracer) {
    tracer.process().signal(libc::SIGKILL);
    assert_eq!(tracer.wait().code, None);
}

/// Traces the steps of a victim, and compares all its numbers.
fn assert_each_block(preloaded: Option<&str>) {
    let mut target = Target::with("patch_steps", &["3000"], preloaded);
    let tracer = target.trace(EACH);
    let functions = patches(target.pid()).len();
    let expected = target.victim.work();
    assert_eq!(PatchStub::of(target.pid()).word(SAMPLES), expected.totals.alloc_count);
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    report.assert_all_end("complete");
    assert_sites(&report, "patch_steps.c", &expected);
    assert_eq!(samplers(&report), [("patched", Some(1))]);
    assert_eq!(report.content.totals.samples, Some(expected.totals.live_count), "each live block is a sample");
    assert_eq!(report.untraced.total.count, 0);
    let facts = patched(&report, target.pid());
    assert!(functions >= 4, "malloc, calloc, realloc and free are patched: {functions}");
    assert_eq!(usize::from(facts.functions), functions);
    assert_eq!((facts.samples, facts.not_inserted, facts.level), (expected.totals.alloc_count, 0, 0));
    assert_eq!((facts.allocated_bytes, facts.exact), (Some(expected.totals.alloc_bytes), true));
    target.finish();
}

#[test]
fn each_block_of_glibc_is_a_sample() {
    assert_each_block(None);
}

#[test]
fn each_block_of_jemalloc_is_a_sample() {
    assert_each_block(Some(JEMALLOC));
}

#[test]
fn extended_functions_of_jemalloc_are_sampled() {
    let mut target = Target::with("patch_steps", &["2000"], Some(JEMALLOC));
    let tracer = target.trace(EACH);
    let expected = target.answer("extended");
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    assert_sites(&report, "patch_steps.c", &expected);
    target.finish();
}

/// Traces functions that return aligned blocks. Each is counted, or named as missing.
fn assert_gaps_are_named(preloaded: Option<&str>) {
    let mut target = Target::with("patch_steps", &["10"], preloaded);
    let tracer = target.trace(EACH);
    let expected = target.answer("aligned");
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let gaps = &patched(&report, target.pid()).gaps;
    let is_gap = |name: &str| {
        let mut words =
            gaps.iter().flat_map(|gap| gap.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
        words.any(|word| word == name)
    };
    assert_eq!(expected.sites.len(), 4);
    for site in &expected.sites {
        let function = site.name.strip_prefix("by_").expect("the sites have the names of functions");
        let counted = if is_gap(function) { Totals::default() } else { site.totals };
        // Code that several functions share is sampled in its caller, as in posix_memalign.
        let is_in = |stack: &&Stack| stack.frames.iter().any(|frame| frame.name.as_deref() == Some(&site.name));
        let totals: Totals = report.stacks.iter().filter(is_in).map(|stack| stack.totals).sum();
        assert_eq!(totals, counted, "{function}, and gaps: {gaps:?}");
    }
    for function in ["malloc", "calloc", "realloc", "free"] {
        assert!(!is_gap(function), "{gaps:?}");
    }
    target.finish();
}

#[test]
fn functions_of_glibc_without_a_site_are_named() {
    assert_gaps_are_named(None);
}

#[test]
fn functions_of_jemalloc_without_a_site_are_named() {
    assert_gaps_are_named(Some(JEMALLOC));
}

/// Traces calls that fail. The old blocks of reallocs stay, and later calls are sampled.
fn assert_failures(preloaded: Option<&str>) {
    let mut target = Target::with("patch_realloc", &[], preloaded);
    let tracer = target.trace(EACH);
    let expected = target.victim.work();
    assert!(PatchStub::of(target.pid()).word(LARGE) > 0, "no size was 2^47 bytes or more");
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    target.finish();
}

#[test]
fn failed_calls_of_glibc_restore_their_blocks() {
    assert_failures(None);
}

#[test]
fn failed_calls_of_jemalloc_restore_their_blocks() {
    assert_failures(Some(JEMALLOC));
}

/// Asserts that `value` is within [`DEVIATIONS`] of an estimate with a 95 % interval, whose half width is 1.96 deviations, and that
/// the half width is in `widths`, as a share of the estimate.
#[track_caller]
fn assert_near(value: u64, estimate: u64, interval: (Option<u64>, Option<u64>), widths: Range<f64>) {
    let (Some(low), Some(high)) = interval else { panic!("the estimate {estimate} has no interval") };
    let half = (high - low) as f64 / 2.0;
    let deviations = value.abs_diff(estimate) as f64 / (half / 1.96);
    assert!(deviations < DEVIATIONS, "{estimate} ({low} to {high}) is {deviations:.1} deviations from {value}");
    let width = half / estimate as f64;
    assert!(widths.contains(&width), "the half width of {estimate} ({low} to {high}) is {width:.3} of it");
}

/// Asserts the estimates of allocated and live bytes.
#[track_caller]
fn assert_estimates(numbers: &Numbers, expected: &Totals, widths: Range<f64>) {
    assert_near(
        expected.alloc_bytes,
        numbers.alloc_bytes,
        (numbers.alloc_bytes_low, numbers.alloc_bytes_high),
        widths.clone(),
    );
    let [live, low, high] = [Some(numbers.live_bytes), numbers.live_bytes_low, numbers.live_bytes_high];
    let unsigned = |number: Option<i64>| number.map(|number| u64::try_from(number).expect("totals are no changes"));
    let live = unsigned(live).expect("the report has live bytes");
    assert_near(expected.live_bytes, live, (unsigned(low), unsigned(high)), widths);
}

#[test]
fn estimates_have_the_error_of_their_samples() {
    let scratch = Scratch::new();
    let mut target = Target::with("patch_steps", &["100"], None);
    // About 3,000 samples of nearly each block, and about 400 samples of 80,000 blocks.
    for (interval, total, widths) in [("64", "8000000", 0.0..0.05), ("512KiB", "209715200", 0.05..0.25)] {
        let recording = scratch.join(format!("{interval}.memtrace"));
        let options = ["--sample-interval", interval, "--allow-patching", "--ring-size", "64MiB"];
        let trace = Trace::victim(&target.victim).options(&options).option("--record").option(&recording);
        let tracer = trace.start();
        let expected = target.answer(&format!("bytes {total}"));
        let report = tracer.stop().report();
        report.assert_nothing_lost();
        report.assert_consistent();
        assert_estimates(&report.content.totals, &expected.totals, widths);
        // Not an estimate: the sum of the draws less the countdowns.
        let facts = patched(&report, target.pid());
        assert_eq!((facts.allocated_bytes, facts.exact), (Some(expected.totals.alloc_bytes), true), "{interval}");
        let recorded = recording_report::read(&recording, &[]);
        assert_eq!((recorded.totals, samplers(&recorded)), (report.totals, samplers(&report)));
        target.assert_restored();
    }
    target.finish();
}

#[test]
fn full_table_keeps_sums_unbiased() {
    let mut target = Target::with("patch_steps", &["100"], None);
    let tracer = target.trace(EACH);
    target.victim.process().write_line("full 200000");
    let expected: Totals = target.victim.read_json();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let facts = patched(&report, target.pid());
    assert!(facts.level > 0, "200,000 blocks fit into the table: {facts:?}");
    // A table of 65,536 blocks: the error is some per mille, and would be 0 if no block were left out.
    assert_estimates(&report.content.totals, &expected, 0.0001..0.05);
    assert_eq!((facts.allocated_bytes, facts.exact), (Some(expected.alloc_bytes), true));
    target.finish();
}

#[test]
fn second_trace_uses_the_stub_of_the_first() {
    let mut target = Target::steps();
    let first = target.trace(EACH);
    let expected = target.victim.work();
    first.stop().report().assert_equals(&expected);
    target.assert_restored();
    // These blocks are unknown to the second trace, and so are their frees.
    target.clear();
    let second = target.trace(EACH);
    assert!(patches(target.pid()).len() >= 4);
    let expected = target.victim.work();
    assert!(expected.unmatched_frees > 0, "{expected:?}");
    let report = second.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    assert_eq!(only_entry(&report, target.pid()).totals, expected.totals);
    assert_eq!((report.unmatched_frees, report.unmatched_samples), (0, 0));
    target.finish();
}

#[test]
fn code_is_restored_by_detach_after_a_kill() {
    let mut target = Target::steps();
    let pid = target.pid();
    let mut tracer = target.trace(EACH);
    let memtrace = tracer.process().pid();
    let functions = patches(pid).len();
    // A memtrace that runs restores the code itself.
    let refused = detach(pid);
    assert_eq!(refused.status.code(), Some(UNTRACEABLE), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains(&format!("memtrace {memtrace}")), "{}", text(&refused.stderr));
    kill(tracer);
    assert_eq!(patches(pid).len(), functions);
    target.victim.work();
    let restored = detach(pid);
    assert_eq!(restored.status.code(), Some(0), "{}", text(&restored.stderr));
    let expected = format!("process {pid} (patch_steps): {functions} functions restored, stopped for ");
    assert!(text(&restored.stdout).starts_with(&expected), "{}", text(&restored.stdout));
    target.assert_restored();
    target.victim.work();
    let again = detach(pid);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("is not patched"), "{}", text(&again.stdout));
    target.finish();
}

#[test]
fn next_trace_takes_over_after_a_kill() {
    let mut target = Target::steps();
    let tracer = target.trace(EACH);
    target.victim.work();
    kill(tracer);
    // The stub goes on to note the addresses of sampled blocks.
    target.victim.work();
    target.clear();
    let tracer = target.trace(EACH);
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    assert_eq!(only_entry(&report, target.pid()).totals, expected.totals);
    target.finish();
}

#[test]
fn sizes_are_filtered() {
    let mut target = Target::steps();
    let tracer = Trace::victim(&target.victim).options(EACH).options(&["--min-size", "3000"]).start();
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let process = only_entry(&report, target.pid()).totals;
    // Sizes are filtered by BPF, after the sample.
    let samples = patched(&report, target.pid()).samples;
    assert_eq!(samples, expected.totals.alloc_count);
    assert_eq!(process.alloc_count + report.filtered.count, expected.totals.alloc_count);
    assert_eq!(process.alloc_bytes + report.filtered.bytes, expected.totals.alloc_bytes);
    assert!(process.alloc_bytes >= 3000 * process.alloc_count && report.filtered.count > 0, "{process:?}");
    assert!(report.filtered.bytes < 3000 * report.filtered.count, "{:?}", report.filtered);
    target.finish();
}

#[test]
fn accounts_have_the_samples() {
    let mut target = Target::steps();
    let tracer = Trace::victim(&target.victim).options(EACH).accounts().start();
    let expected = target.victim.work();
    let accounts = tracer.stop().accounts();
    accounts.assert_consistent();
    assert_eq!(accounts.accounts.len(), 1, "{accounts:?}");
    let names: Vec<&str> = accounts.accounts[0].names.iter().map(|name| &**name).collect();
    accounts.assert_equals(&names, &expected.totals);
    target.finish();
}

#[test]
fn doctor_lists_the_sites() {
    let target = Target::with("patch_steps", &["10"], None);
    let findings = |target: &Target| {
        let output = doctor::run_through(&[], &tracer::binary(), Some(target.pid()));
        let findings = output.findings_on("patching");
        findings.iter().map(|finding| (finding.verdict.to_string(), finding.detail.to_string())).collect::<Vec<_>>()
    };
    let before = findings(&target);
    let is_ok = |(verdict, _): &&(String, String)| verdict == "ok";
    let ok: Vec<_> = before.iter().filter(is_ok).collect();
    let [(_, sites)] = ok[..] else { panic!("{before:#?}") };
    for function in ["malloc+0x", "calloc+0x", "realloc+0x", "free+0x"] {
        assert!(sites.contains(function), "{sites}");
    }
    target.assert_untouched();
    kill(target.trace(EACH));
    let left = findings(&target);
    let is_left =
        |(verdict, detail): &(String, String)| verdict == "warn" && detail.contains("a memtrace that has ended");
    assert!(left.iter().any(is_left), "{left:#?}");
    assert!(detach(target.pid()).status.success());
    target.finish();
}

#[test]
fn stopped_process_is_patched_and_stays_stopped() {
    let mut target = Target::steps();
    let pid = target.pid();
    let is_stopped = |stat: &str| stat.contains(") T ");
    target.victim.process().signal(libc::SIGSTOP);
    process::wait_for_file(pid, "stat", is_stopped, "stop");
    let tracer = target.trace(EACH);
    assert!(patches(pid).len() >= 4);
    // After the release by the patcher, a stopped thread may run for a moment until it stops again.
    process::wait_for_file(pid, "stat", is_stopped, "stop again");
    target.victim.process().signal(libc::SIGCONT);
    let expected = target.victim.work();
    target.victim.process().signal(libc::SIGSTOP);
    process::wait_for_file(pid, "stat", is_stopped, "stop");
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    process::wait_for_file(pid, "stat", is_stopped, "stop again");
    target.assert_restored();
    target.victim.process().signal(libc::SIGCONT);
    target.victim.work();
    target.finish();
}

/// Returns the path of the first file of process `pid` with a name that starts with `name`.
fn mapped(pid: u32, name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the victim runs");
    let paths = maps.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    let is_named = |path: &&Path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
    paths.filter(is_named).map(Path::to_path_buf).next()
}

/// Returns the path of the library `name`, which process `pid` has mapped.
#[track_caller]
fn library(pid: u32, name: &str) -> PathBuf {
    mapped(pid, name).unwrap_or_else(|| panic!("process {pid} has not mapped {name}"))
}
