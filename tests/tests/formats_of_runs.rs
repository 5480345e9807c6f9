//! Several formats of one run, and of its recording.

use std::fs;
use std::path::Path;
use std::process::Command;

use memtrace_tests::activity::Activity;
use memtrace_tests::{Outcome, Scratch, Trace, perfetto, recording_report, victim};
use serde::Deserialize as _;
use serde_json::Value;

/// Traces a victim that starts its work after the attachment and prints JSON.
fn traced(name: &str, arguments: &[&str], options: &[&str]) -> Outcome {
    let mut victim = victim::start_with(name, arguments);
    let tracer = Trace::victim(&victim).options(options).start();
    victim.process().write_line("");
    let _: Value = victim.read_json();
    let outcome = tracer.stop();
    victim.finish();
    outcome
}

/// Returns the sums of the samples of a profile by type, in the order of the file.
fn pprof_sums(path: &Path, home: &Path) -> [u64; 5] {
    let output = Command::new("go").args(["tool", "pprof", "-raw"]).arg(path).env("HOME", home).output();
    let output = output.expect("`cargo xtask setup` installs go");
    let text = String::from_utf8(output.stdout).expect("pprof prints UTF-8");
    assert!(text.contains("\ninuse_space/bytes inuse_objects/count alloc_space/bytes[dflt] alloc_objects/count temporary_objects/count\n"), "{text}");
    let mut sums = [0; 5];
    let samples = text.lines().skip_while(|line| *line != "Samples:").skip(2).take_while(|line| *line != "Locations");
    for (values, _) in samples.filter_map(|line| line.split_once(": ")) {
        let values: Vec<u64> = values.split_whitespace().map_while(|value| value.parse().ok()).collect();
        // Labels are lines without numbers.
        if let Ok(values) = <[u64; 5]>::try_from(values) {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    sums
}

#[test]
fn five_formats_of_a_run_have_the_same_totals() {
    let scratch = Scratch::new();
    let [svg, pprof, trace, page] = ["a.svg", "a.pb.gz", "a.pftrace", "a.html"].map(|name| scratch.path(name));
    let paths = [&svg, &pprof, &trace, &page].map(|path| path.to_str().expect("the path is text"));
    let outputs: Vec<_> = paths.iter().flat_map(|path| ["-o", path]).collect();
    let options = [&["-m", "alloc-bytes", "-i", "100ms", "--span=probes"], &outputs[..]].concat();
    let outcome = traced("spans", &["3"], &options);
    let (report, activity) = (outcome.report(), outcome.activity());
    let totals = &report.totals;
    assert!(totals.alloc_bytes > 0 && !activity.slices.is_empty());

    let [in_use_bytes, in_use, allocated_bytes, allocated, _] = pprof_sums(&pprof, scratch.path("home").as_path());
    let in_report = [totals.live_count, totals.live_bytes, totals.alloc_count, totals.alloc_bytes];
    assert_eq!([in_use, in_use_bytes, allocated, allocated_bytes], in_report);

    let read = perfetto::read(&trace);
    let [bytes, freed, count, frees] = <[u64; 4]>::deserialize(&read["sums"]).expect("four sums");
    assert_eq!([count - frees, bytes - freed, count, bytes], in_report);
    assert_eq!(read["slices"].as_array().map(Vec::len), Some(activity.slices.len()));

    let page = fs::read_to_string(&page).expect("the page is written");
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"report\">").expect("the page has a report");
    let (json, _) = rest.split_once("</script>").expect("the report ends");
    let json: Value = serde_json::from_str(json).expect("the report is JSON");
    assert_eq!(json["totals"]["alloc_bytes"], totals.alloc_bytes);
    assert_eq!(json["activity"]["slices"].as_array().map(Vec::len), Some(activity.slices.len()));

    let svg = fs::read_to_string(&svg).expect("the picture is written");
    let (_, rest) = svg.split_once("<title>all (").expect("the picture has a root");
    let digits: String = rest.chars().take_while(|letter| *letter != ' ').filter(char::is_ascii_digit).collect();
    assert_eq!(digits, totals.alloc_bytes.to_string());
}

#[test]
fn activity_of_a_recording_equals_that_of_its_run() {
    for (name, arguments, options) in [
        ("spans", &["3"][..], ["--span=probes", "--allocator-latency=1ns"]),
        ("locks", &[], ["--span=probes", "--min-wait=1ms"]),
    ] {
        let scratch = Scratch::new();
        let [recording, json] = ["run.memtrace", "report.json"].map(|name| scratch.path(name));
        let record = recording.to_str().expect("the path is text");
        let outcome = traced(name, arguments, &[&options[..], &["--record", record, "-i", "100ms"]].concat());
        let of_run = outcome.activity();
        assert!(!of_run.slices.is_empty());
        let output = recording_report::run(&recording, &["-o", json.to_str().expect("the path is text")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(&json).expect("the report is written");
        let of_recording = Activity::read(&text).expect("a JSON report");
        assert!(of_recording == of_run, "{name}: {of_recording:#?}\nis not\n{of_run:#?}");
    }
}

#[test]
fn heap_profiles_of_a_run_are_those_at_its_marks() {
    // Places in the counters of the victim.
    const ALLOCATED: usize = 1;
    const FREED: usize = 3;
    let scratch = Scratch::new();
    let (temporary, trace) = (scratch.subdirectory("temporary"), scratch.path("a.pftrace"));
    let mut victim = victim::start("accounts");
    let tracer = Trace::victim(&victim).environment("TMPDIR", &temporary);
    let mut tracer = tracer.options(&["--heap-profile", "+1h", "-o"]).option(&trace).start();
    let mut phase = || -> u64 {
        victim.process().write_line("");
        let counters: Vec<[u64; 11]> = victim.read_json();
        let all = counters.last().expect("the victim prints the sum");
        all[ALLOCATED] - all[FREED]
    };
    let first = phase();
    tracer.process().signal(libc::SIGUSR2);
    assert!(tracer.process().wait_for_stderr_line("memtrace: mark SIGUSR2 at "));
    let second = phase();
    assert_ne!(first, second);
    let outcome = tracer.stop();
    victim.finish();
    let read = perfetto::read(&trace);
    let profiles: Vec<(u64, [u64; 4])> = Vec::deserialize(&read["profiles"]).expect("heap profiles");
    let live: Vec<u64> = profiles.iter().map(|(_, [allocated, freed, ..])| allocated - freed).collect();
    assert_eq!(live, [first, second]);
    assert_eq!(read["instants"][0][2], "SIGUSR2");
    assert!(outcome.stderr.contains("1 of 1 heap profiles are missing"), "{}", outcome.stderr);
    assert_eq!(fs::read_dir(temporary).expect("it is a directory").count(), 0);
}

#[test]
fn marks_are_in_a_trace_without_a_recording() {
    let scratch = Scratch::new();
    let trace = scratch.path("a.pftrace");
    let victim = victim::start("accounts");
    let mut tracer = Trace::victim(&victim).option("-o").option(&trace).start();
    tracer.process().signal(libc::SIGUSR2);
    assert!(tracer.process().wait_for_stderr_line("memtrace: mark SIGUSR2 at "));
    tracer.stop().assert_code(0);
    assert_eq!(perfetto::read(&trace)["instants"][0][2], "SIGUSR2");
}
