//! Allocators and libraries that sample their own allocations. The victim counts its blocks. If each block is a sample,
//! its numbers equal the numbers in the report.

mod long;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::{Report, Scratch, Trace, Victim, VictimTotals, breakpoints, poll, recording_report, victim};

const NO_ALLOCATOR: i32 = 6;
/// Events were lost: a free, for example, if an address is reported twice.
const LOST: i32 = 20;

/// Options of a trace that uses samples only.
const OWN: &[&str] = &["--source", "own", "--ring-size", "64MiB"];

/// Arguments of the victim. Each of its blocks has at least 64 bytes, so that an interval of one byte leaves no block out.
const STEPS: &[&str] = &["steps", "3000"];

/// Interval of estimates, in bytes.
const INTERVAL: u64 = 1024;

/// Bytes allocated and kept by each stack of a victim, by the names of its functions.
type Groups = BTreeMap<String, [u64; 2]>;

/// Returns the command of a victim whose allocator takes one sample for each `interval` bytes, a power of two.
fn command(name: &str, interval: u64, arguments: &[&str]) -> Command {
    let mut command = Command::new(victim::path(name));
    command.args(arguments);
    command.envs(environment(interval));
    command
}

/// Returns the environment that sets the interval of jemalloc and of gperftools.
fn environment(interval: u64) -> [(&'static str, String); 2] {
    [
        ("MALLOC_CONF", format!("prof:true,lg_prof_sample:{}", interval.ilog2())),
        ("TCMALLOC_SAMPLE_PARAMETER", interval.to_string()),
    ]
}

/// Returns the arguments of a victim with many stacks, each with about `samples` samples in its live blocks.
fn groups(samples: u64) -> [String; 3] {
    [String::from("groups"), samples.to_string(), INTERVAL.to_string()]
}

/// Returns the samplers in a report, with their intervals.
fn samplers(report: &Report) -> Vec<(&str, Option<u64>)> {
    report.samplers.iter().map(|sampler| (&*sampler.source, sampler.interval_bytes)).collect()
}

/// Releases the victim from its barrier, and returns the blocks of its stacks.
fn work(victim: &mut Victim) -> Groups {
    victim.process().write_line("");
    victim.read_json()
}

/// Returns the semaphore of the victim's probe.
fn semaphore(victim: &mut Victim) -> u32 {
    victim.process().write_line("semaphore");
    victim.read_json()
}

/// Traces a victim of whose blocks each is a sample, and compares all its numbers.
fn assert_each_block(name: &str, options: &[&str], sampler: (&str, Option<u64>)) {
    let mut victim = Victim::start(&mut command(name, 1, STEPS));
    let tracer = Trace::victim(&victim).options(options).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
    assert_eq!(samplers(&report), [sampler]);
    assert_eq!(report.content.totals.samples, Some(expected.totals.live_count), "each live block is a sample");
    assert_eq!(report.untraced.total.count, 0);
}

#[test]
fn each_block_of_jemalloc_is_counted() {
    assert_each_block("sampled.jemalloc", OWN, ("jemalloc", Some(1)));
}

#[test]
fn each_block_of_gperftools_is_counted() {
    assert_each_block("sampled.tcmalloc", OWN, ("tcmalloc", Some(1)));
}

#[test]
fn each_block_of_otel_memory_probes_is_counted() {
    assert_each_block("sampled.otel_memory", OWN, ("otel_memory", None));
}

#[test]
fn each_block_of_ddheap_probes_is_counted() {
    assert_each_block("sampled.ddheap", OWN, ("ddheap", None));
}

#[test]
fn probes_of_a_program_without_a_known_allocator_are_used() {
    assert_each_block("sampled.stripped", &[], ("otel_memory", None));
}

#[test]
fn sampler_precedes_the_probes_above_it() {
    // Both report each block.
    assert_each_block("sampled.both", OWN, ("jemalloc", Some(1)));
}

#[test]
fn probes_are_used_if_the_sampler_below_them_is_off() {
    let mut victim = victim::start_with("sampled.both", STEPS);
    let tracer = Trace::victim(&victim).options(OWN).start();
    // jemalloc has two functions with probes, and memtrace reads the switch of the sampler twice.
    poll::until(|| match breakpoints::list(victim.pid()) {
        all if all.len() == 4 => Ok(()),
        all => Err(all),
    });
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
    assert_eq!(samplers(&report), [("otel_memory", None)]);
}

#[test]
fn blocks_that_two_objects_report_are_noted() {
    let mut command = command("sampled.otel_memory", 1, STEPS);
    let mut victim = Victim::start(command.env("LD_PRELOAD", victim::path("libsampling.so")));
    let tracer = Trace::victim(&victim).options(OWN).start();
    victim.work();
    let report = tracer.stop().report_with_code(LOST);
    let expected = [("jemalloc", Some(1)), ("otel_memory", None)];
    assert_eq!(samplers(&report), expected);
    let note = format!("process {}: the samples of its allocator and of its USDT probes", victim.pid());
    let notes = report.notes_of_target();
    assert_eq!(notes.iter().filter(|text| text.starts_with(&note)).count(), 1, "{notes:?}");
    victim.finish();
}

/// Returns the number of links and perf events that a process holds for its probes.
fn links(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("memtrace runs");
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
    let is_link = |target: &PathBuf| {
        let name = target.to_string_lossy();
        name.starts_with("anon_inode:bpf") && name.contains("link") || name == "anon_inode:[perf_event]"
    };
    targets.filter(is_link).count()
}

#[test]
fn probes_of_ended_processes_are_removed() {
    let mut victim = Victim::start(&mut command("sampled.stripped", 1, STEPS));
    let mut tracer = Trace::victim(&victim).option("--children").start();
    victim.work();
    let memtrace = tracer.process().pid();
    let before = links(memtrace);
    // The second child has the PID of the first one.
    for child in ["first", "second"] {
        victim.process().write_line("child");
        assert_eq!(victim.read_json::<u32>(), 1, "the {child} child has no probes");
    }
    poll::until(|| match links(memtrace) {
        number if number == before => Ok(()),
        number => Err((number, before)),
    });
    tracer.stop().report().assert_nothing_lost();
    victim.finish();
}

#[test]
fn samples_end_when_an_allocator_is_mapped() {
    let mut victim = Victim::start(&mut command("sampled.stripped", 1, STEPS));
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    assert_eq!(semaphore(&mut victim), 1);
    let maps = fs::read_to_string("/proc/self/maps").expect("the test runs");
    let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.ends_with("/libc.so.6"));
    victim.process().write_line(&format!("map {}", libc.expect("the test uses glibc")));
    assert_eq!(victim.read_json::<u32>(), 1);
    poll::until(|| match semaphore(&mut victim) {
        0 => Ok(()),
        raised => Err(raised),
    });
    let report = tracer.stop().report_with_code(LOST);
    report.assert_only_lost(LossReason::AllocatorLate, 1);
    report.assert_consistent();
    let [process] = report.entries_of(victim.pid())[..] else { panic!("{:#?}", report.processes) };
    process.assert_equals(&expected);
    assert_eq!(samplers(&report), [("otel_memory", None)]);
    let note = format!("process {}: the samples of its USDT probes count until", victim.pid());
    let notes = report.notes_of_target();
    assert!(notes.iter().any(|text| text.starts_with(&note)), "{notes:?}");
    victim.finish();
}

#[test]
fn exact_probes_precede_samples() {
    let mut of_jemalloc = Victim::start(&mut command("sampled.jemalloc", 1, STEPS));
    let mut of_probes = Victim::start(&mut command("sampled.otel_memory", 1, STEPS));
    let tracer = Trace::pids(&[of_jemalloc.pid(), of_probes.pid()]).start();
    let expected = [of_jemalloc.work(), of_probes.work()];
    assert_eq!(semaphore(&mut of_probes), 0);
    let report = tracer.stop().report();
    assert!(report.samplers.is_empty(), "{:?}", report.samplers);
    for (mut victim, expected) in [of_jemalloc, of_probes].into_iter().zip(&expected) {
        assert!(victim.process().is_running(), "numbers of an ended process are equal too");
        let [process] = report.entries_of(victim.pid())[..] else { panic!("{:#?}", report.processes) };
        process.assert_equals(expected);
        victim.finish();
    }
}

#[test]
fn samplers_that_are_off_are_named_with_the_reason() {
    let mut of_jemalloc = victim::start_with("sampled.jemalloc", STEPS);
    let mut of_gperftools = victim::start_with("sampled.tcmalloc", STEPS);
    let stripped = victim::start_with("family.jemalloc", &["10"]);
    let tracer = Trace::pids(&[of_jemalloc.pid(), of_gperftools.pid(), stripped.pid()]).options(OWN).start();
    for victim in [&of_jemalloc, &of_gperftools, &stripped] {
        // Functions that report samples have probes, malloc has none.
        let has_probes = victim.pid() != stripped.pid();
        assert_eq!(!breakpoints::list(victim.pid()).is_empty(), has_probes);
    }
    of_jemalloc.work();
    of_gperftools.work();
    let report = tracer.stop().report_with_code(NO_ALLOCATOR);
    assert_eq!((report.totals.alloc_count, samplers(&report)), (0, Vec::new()));
    let notes = report.notes_of_target();
    let reasons = [
        (of_jemalloc.pid(), "its jemalloc was built with profiling, but started without prof:true"),
        (of_gperftools.pid(), "gperftools needs TCMALLOC_SAMPLE_PARAMETER"),
    ];
    for (pid, reason) in reasons {
        let is_note = |note: &&str| note.starts_with(&format!("process {pid} (sampled.")) && note.contains(reason);
        assert!(notes.iter().any(is_note), "{notes:?}");
    }
    let is_stripped = |note: &&str| note.contains("libjemalloc.so.2: ") && note.contains("the object is stripped");
    assert!(notes.iter().any(is_stripped), "{notes:?}");
    let untraced: Vec<_> = report.untraced.processes.iter().map(|process| &*process.reason).collect();
    assert_eq!(untraced, ["no_own_profile"; 3]);
    of_jemalloc.finish();
    of_gperftools.finish();
}

#[test]
fn semaphore_falls_when_memtrace_is_killed() {
    for (name, probes) in [("sampled.otel_memory", 1), ("sampled.ddheap", 2)] {
        let mut victim = Victim::start(&mut command(name, 1, STEPS));
        let tracer = Trace::victim(&victim).options(OWN).start();
        victim.work();
        // With one semaphore for both probes, each probe raises it.
        assert_eq!(semaphore(&mut victim), probes, "{name}");
        assert_eq!(tracer.stop_by(libc::SIGKILL).code, None);
        poll::until(|| match semaphore(&mut victim) {
            0 => Ok(()),
            raised => Err(raised),
        });
        victim.finish();
    }
}

#[test]
fn totals_are_estimates_with_intervals() {
    for name in ["sampled.jemalloc", "sampled.tcmalloc", "sampled.otel_memory", "sampled.ddheap"] {
        let scratch = Scratch::new();
        let recording = scratch.join("run.memtrace");
        let arguments = groups(5);
        let mut victim = Victim::start(&mut command(name, INTERVAL, &arguments.each_ref().map(String::as_str)));
        let tracer = Trace::victim(&victim).options(OWN).option("--record").option(&recording).start();
        let expected = work(&mut victim);
        let report = tracer.stop().report();
        victim.finish();
        report.assert_consistent();
        report.assert_nothing_lost();
        let [allocated, kept] = [0, 1].map(|which| expected.values().map(|bytes| bytes[which]).sum::<u64>());
        let numbers = &report.content.totals;
        let [live_low, live_high] =
            [numbers.live_bytes_low, numbers.live_bytes_high].map(|end| end.map(i64::cast_unsigned));
        let intervals = [
            (allocated, report.totals.alloc_bytes, numbers.alloc_bytes_low, numbers.alloc_bytes_high),
            (kept, report.totals.live_bytes, live_low, live_high),
        ];
        for (expected, estimate, low, high) in intervals {
            let (Some(low), Some(high)) = (low, high) else { panic!("{numbers:?}") };
            // The interval has a half width of 1.96 standard deviations: the estimate is off by less than five of them.
            let deviations = expected.abs_diff(estimate) as f64 / ((high - low) as f64 / 2.0 / 1.96);
            assert!(deviations < 5.0, "{name}: {estimate} ({low} to {high}), and {expected} bytes");
            // About 10,000 samples, with a standard deviation of 1 %.
            assert!(high - low < estimate / 10, "{name}: {estimate} ({low} to {high})");
        }
        let samples = numbers.samples.unwrap_or_default();
        assert!((5000..20_000).contains(&samples), "{name}: {samples} samples");
        let recorded = recording_report::read(&recording, &[]);
        assert_eq!((recorded.totals, samplers(&recorded)), (report.totals, samplers(&report)), "{name}");
    }
}

#[test]
fn command_is_sampled_from_its_start() {
    let program = victim::path("sampled.jemalloc").into_os_string();
    let words = [program].into_iter().chain(STEPS.iter().map(OsString::from));
    let trace = Trace::command(words).options(OWN);
    let trace = environment(1).into_iter().fold(trace, |trace, (name, value)| trace.environment(name, value));
    let mut tracer = trace.start();
    assert!(tracer.process().read_line().starts_with("ready "));
    tracer.process().write_line("");
    let line = tracer.process().read_line();
    let expected: VictimTotals = serde_json::from_str(&line).expect("the victim printed its totals");
    tracer.process().write_line("");
    let report = tracer.wait().report();
    report.assert_consistent();
    report.assert_nothing_lost();
    // The C++ library allocates before the victim counts.
    let before = report.totals.exit_count - expected.totals.live_count;
    assert!(before < 10, "{:?}, and {expected:?}", report.totals);
    assert!(report.totals.alloc_count > expected.totals.alloc_count, "the first block of the victim was sampled");
    // The interval is unknown if the victim has ended before it was read.
    let sources: Vec<_> = samplers(&report).into_iter().map(|(source, _)| source).collect();
    assert_eq!(sources, ["jemalloc"]);
}
