//! Reports of recordings equal the reports of the runs, and the victims' own counts at earlier
//! moments.

mod alone;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use memtrace_tests::{
    Report, Scratch, Totals, Trace, Tracer, Victim, killed_recording, mark, poll, recording_report, victim,
};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Returns a report without the times that processes ran. These times can differ, because a recording has the end
/// times that the BPF programs record.
fn comparable(mut report: Report) -> Report {
    for process in &mut report.processes {
        process.content.traced_s = 0.0;
        process.content.ended_s = None;
    }
    report
}

/// Asserts that the report of a run equals the report of its recording.
fn assert_equal(run: Report, recording: Report) {
    let (run, recording) = (comparable(run), comparable(recording));
    assert_eq!(recording.totals, run.totals);
    assert_eq!(recording.processes, run.processes);
    assert_eq!(recording.losses, run.losses);
    assert_eq!(recording.stacks.len(), run.stacks.len());
    for (recorded, stack) in recording.stacks.iter().zip(&run.stacks) {
        assert_eq!(recorded, stack);
    }
    assert_eq!(recording, run);
}

/// Waits until the recording has `number` more intervals.
fn wait_for_intervals(recording: &Path, number: u64) {
    let count = || -> rusqlite::Result<u64> {
        let connection = Connection::open_with_flags(recording, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.query_one("SELECT count(*) FROM interval", [], |row| row.get::<_, i64>(0).map(i64::cast_unsigned))
    };
    let before = poll::until(count);
    poll::until(|| match count() {
        Ok(count) if count >= before + number => Ok(()),
        count => Err(count),
    });
}

/// Waits until the recording has these totals.
fn wait_for(recording: &Path, expected: Totals) {
    poll::until(|| {
        let output = recording_report::run(recording, &["--format", "json"]);
        match Report::read(&String::from_utf8_lossy(&output.stdout)) {
            Ok(report) if report.totals == expected => Ok(()),
            report => Err(format!("{report:?} instead of {expected:?}")),
        }
    });
}

/// Returns the report of a run. If `ends_with_victim` is true, the run ends with the victim, and
/// otherwise before it.
fn report_after_work(victim: Victim, tracer: Tracer, ends_with_victim: bool) -> Report {
    if ends_with_victim {
        victim.finish();
        tracer.wait().report()
    } else {
        let run = tracer.stop().report();
        victim.finish();
        run
    }
}

/// Returns the current time in the format of RFC 3339.
fn now() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%NZ"]).output().expect("date starts");
    String::from_utf8(output.stdout).expect("a time").trim().to_owned()
}

#[test]
fn report_of_a_recording_equals_that_of_the_run() {
    let scratch = Scratch::new();
    let recording = scratch.join("run.memtrace");
    let script = "for i in 1 2 3; do ls -l /usr/bin > /dev/null; done; true | sleep 0.5";
    let trace = Trace::command(["sh", "-c", script]).option("--record").option(&recording);
    let run = trace.options(&["-i", "100ms"]).run().report();
    assert!(run.leaves().iter().any(Option::is_some));
    assert_equal(run, recording_report::read(&recording, &[]));
}

#[test]
fn report_of_a_running_process_equals_that_of_the_run() {
    let scratch = Scratch::new();
    let recording = scratch.join("run.memtrace");
    let mut victim = victim::start("threads");
    let tracer =
        Trace::victim(&victim).options(&["-i", "100ms", "--by", "thread", "--record"]).option(&recording).start();
    let expected = victim.work();
    let run = tracer.stop().report();
    victim.finish();
    assert_eq!(run.totals, expected.totals);
    assert_equal(run, recording_report::read(&recording, &[]));
}

/// Asserts the trend in the report of a run. `expected`: totals of the victim, which allocated at one moment.
fn assert_single_growth(run: &Report, expected: Totals) {
    assert!((8..=16).contains(&run.parts.len()), "{:?}", run.parts);
    assert!(run.parts.windows(2).all(|pair| pair[0].to_s == pair[1].from_s), "{:?}", run.parts);
    let stacks: Vec<_> = run.stacks_with_leaf("work").collect();
    assert_eq!(stacks.len(), 1, "{stacks:?}");
    let stack = stacks[0];
    assert_eq!([stack.live_changes.len(), stack.part_allocs.len()], [run.parts.len(); 2]);
    // The moment can be at the boundary of two parts.
    assert_eq!(stack.live_changes.iter().sum::<i64>().cast_unsigned(), expected.live_bytes);
    assert_eq!(stack.part_allocs.iter().sum::<u64>(), expected.alloc_bytes);
    assert!(stack.part_allocs.iter().filter(|bytes| **bytes > 0).count() <= 2, "{stack:?}");
    assert_eq!(stack.trend.as_deref(), Some("single_growth"));
}

#[test]
fn trends_of_a_recorded_run_equal_those_of_its_recording() {
    let scratch = Scratch::new();
    let recording = scratch.join("trends.memtrace");
    let mut victim = victim::start_with("steady", &["5000"]);
    let tracer = Trace::victim(&victim).option("--record").option(&recording).options(&["-i", "100ms"]).start();
    let expected = victim.work().totals;
    wait_for_intervals(&recording, 20);
    let run = tracer.stop().report();
    victim.finish();
    assert_single_growth(&run, expected);
    assert_equal(run, recording_report::read(&recording, &[]));
}

/// Returns the report that a web page contains.
fn report_of_page(page: &Path) -> Value {
    let text = fs::read_to_string(page).expect("the page can be read");
    let (_, rest) = text.split_once("id=\"report\">").expect("a report");
    let (report, _) = rest.split_once("</script>").expect("an end of the report");
    serde_json::from_str(report).expect("JSON")
}

/// Returns the last value of a series.
fn last(series: &Value) -> Option<u64> {
    series.as_array()?.last()?.as_u64()
}

#[test]
fn memory_over_time_equals_the_counts_of_the_victim() {
    let scratch = Scratch::new();
    let (recording, page) = (scratch.join("run.memtrace"), scratch.join("run.html"));
    let mut victim = victim::start_with("steady", &["5000"]);
    let trace = Trace::victim(&victim).option("--record").option(&recording).option("-o").option(&page);
    let tracer = trace.options(&["-i", "100ms"]).start();
    let expected = victim.work().totals;
    // Intervals that end before the start of tracing share the first moment. The victim works in a later interval.
    wait_for(&recording, expected);
    wait_for_intervals(&recording, 5);
    let status = fs::read_to_string(format!("/proc/{}/status", victim.pid())).expect("the victim runs");
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    let anonymous: u64 = anonymous.expect("a line").trim().parse().expect("a number");
    let run = tracer.stop().report();
    victim.finish();
    assert_eq!(run.totals, expected);
    let timeline = report_of_page(&page)["timeline"].clone();
    assert!(timeline["moments_s"].as_array().is_some_and(|moments| moments.len() > 5), "{timeline}");
    let [process] = timeline["processes"].as_array().expect("a list").as_slice() else { unreachable!("{timeline}") };
    for series in [&timeline["total"], process] {
        assert_eq!(last(&series["live_bytes"]), Some(expected.live_bytes), "{series}");
        assert_eq!(last(&series["alloc_bytes"]), Some(expected.alloc_bytes), "{series}");
    }
    assert_eq!(last(&process["rss_anon_bytes"]), Some(anonymous * 1024), "{process}");
    let replayed = scratch.join("replayed.html");
    recording_report::run(&recording, &["-o", replayed.to_str().expect("UTF-8")]);
    assert_eq!(report_of_page(&replayed)["timeline"], timeline);
}

#[test]
fn memory_over_time_needs_no_recording() {
    let scratch = Scratch::new();
    let page = scratch.join("run.html");
    let script = "for i in 1 2 3; do ls -l /usr/bin > /dev/null; done; true | sleep 1";
    let run = Trace::command(["sh", "-c", script]).option("-o").option(&page).options(&["-i", "100ms"]).run().report();
    let timeline = &report_of_page(&page)["timeline"];
    assert_eq!(last(&timeline["total"]["alloc_bytes"]), Some(run.totals.alloc_bytes), "{timeline}");
    assert_eq!(last(&timeline["total"]["live_bytes"]), Some(0), "{timeline}");
    assert!(timeline["processes"].as_array().is_some_and(|processes| processes.len() >= 5), "{timeline}");
}

#[test]
fn runs_with_periodic_sites_have_trends() {
    let mut victim = victim::start_with("steady", &["5000"]);
    let mut tracer = Trace::victim(&victim).options(&["--every", "1s"]).start();
    let expected = victim.work().totals;
    for _ in 0..12 {
        assert!(tracer.process().wait_for_stderr(|line| line.contains("  live ")));
    }
    let run = tracer.stop().report();
    victim.finish();
    assert_single_growth(&run, expected);
}

#[test]
fn runs_without_a_history_have_trends() {
    let mut victim = victim::start_with("steady", &["5000"]);
    // A trace with a duration has 32 intervals, of at least 250 ms.
    let tracer = Trace::victim(&victim).options(&["-d", "5s"]).start();
    let expected = victim.work().totals;
    let outcome = tracer.wait();
    victim.finish();
    assert_single_growth(&outcome.report(), expected);
    assert!(outcome.stderr.contains("     single growth: +"), "{}", outcome.stderr);
}

#[test]
fn trend_of_a_run_equals_the_counts_of_the_victim() {
    // Maximum difference between the times of the test and of the trace, in seconds.
    const SLACK: f64 = 0.5;
    let mut victim = victim::start_with("steady", &["5000"]);
    let tracer = Trace::victim(&victim).options(&["-d", "12s"]).start();
    let start = Instant::now();
    let mut steps = Vec::new();
    for _ in 0..30 {
        let live = victim.work().totals.live_bytes;
        steps.push((start.elapsed().as_secs_f64(), live));
        // The growth has to take as long as eight intervals.
        thread::sleep(Duration::from_millis(200));
    }
    let outcome = tracer.stop();
    victim.finish();
    let run = outcome.report();
    let stacks: Vec<_> = run.stacks_with_leaf("work").collect();
    assert_eq!(stacks.len(), 1, "{stacks:?}");
    assert_eq!(stacks[0].live_changes.len(), run.parts.len());
    let counted = |time: f64| steps.iter().take_while(|(at, _)| *at <= time).last().map_or(0, |(_, live)| *live);
    let mut live = 0_i64;
    for (part, change) in run.parts.iter().zip(&stacks[0].live_changes) {
        live += change;
        let bounds = counted(part.to_s - SLACK)..=counted(part.to_s + SLACK);
        assert!(bounds.contains(&live.cast_unsigned()), "{live} is not in {bounds:?} at {part:?}: {steps:?}");
    }
    assert_eq!(Some(live.cast_unsigned()), steps.last().map(|(_, live)| *live));
    assert_eq!(stacks[0].trend.as_deref(), Some("steady_growth"));
    assert!(outcome.stderr.contains("     steady growth: +"), "{}", outcome.stderr);
}

#[test]
fn report_at_a_moment_equals_the_counts_of_the_victim() {
    let scratch = Scratch::new();
    let recording = scratch.join("steady.memtrace");
    let mut victim = victim::start_with("steady", &["100", "5000"]);
    let tracer = Trace::victim(&victim).option("--record").option(&recording).options(&["-i", "100ms"]).start();
    let mut steps = Vec::new();
    for _ in 0..3 {
        let expected = victim.work();
        // During the recording, the report shows the last interval.
        wait_for(&recording, expected.totals);
        steps.push((now(), expected.totals));
    }
    victim.finish();
    let run = tracer.wait().report();
    for (time, totals) in &steps {
        let report = recording_report::read(&recording, &["--at", time]);
        assert_eq!(report.totals, *totals, "at {time}");
        assert_eq!(report.processes[0].ended, None);
    }
    let [(first, before), (second, after), _] = &steps[..] else { panic!("three steps") };
    let window = recording_report::read(&recording, &["--from", first, "--to", second]);
    assert_eq!((window.totals, &*window.metric), (*after - *before, "net-growth"));
    assert_equal(run, recording_report::read(&recording, &[]));
}

#[test]
fn blocks_of_the_minimum_age_equal_those_of_the_run() {
    let scratch = Scratch::new();
    for ends in [false, true] {
        let recording = scratch.join("older.memtrace");
        let mut victim = victim::start_with("steady", &["100", "70"]);
        let trace = Trace::victim(&victim).options(&["-i", "100ms", "--older", "500ms", "--record"]);
        let tracer = trace.option(&recording).start();
        let early = victim.work().totals;
        // The test needs blocks of different ages.
        thread::sleep(Duration::from_millis(700));
        let all = victim.work().totals;
        let run = report_after_work(victim, tracer, ends);
        let held = if ends { run.totals.exit_count } else { run.totals.live_count };
        assert_eq!(held, early.live_count);
        assert!(run.totals.alloc_count >= all.alloc_count, "{:?}", run.totals);
        assert_equal(run, recording_report::read(&recording, &[]));
    }
}

#[test]
fn peaks_of_processes_equal_those_of_the_run() {
    let scratch = Scratch::new();
    for ends in [false, true] {
        let recording = scratch.join("peak.memtrace");
        let mut victim = victim::start("peak");
        let options = ["-i", "100ms", "--metric", "peak-bytes", "--record"];
        let tracer = Trace::victim(&victim).options(&options).option(&recording).start();
        let expected = victim.work();
        let run = report_after_work(victim, tracer, ends);
        let report = recording_report::read(&recording, &[]);
        assert_eq!((&*report.metric, report.processes[0].peak_bytes), ("peak-bytes", Some(expected.peak_bytes)));
        assert_equal(run, report);
        let early = recording_report::run(&recording, &["--metric", "peak-bytes", "--at", "+0s"]);
        assert_eq!(early.status.code(), Some(2));
    }
}

#[test]
fn growth_between_marks_equals_the_counts_of_the_victim() {
    let scratch = Scratch::new();
    let (recording, socket) = (scratch.join("growth.memtrace"), scratch.join("growth.sock"));
    let mut victim = victim::start("growth");
    let trace = Trace::victim(&victim).option("--record").option(&recording).options(&["-i", "100ms"]);
    let tracer = trace.option("--socket").option(&socket).start();
    let mut steps = Vec::new();
    for step in 0..5 {
        let totals = victim.work();
        mark::set(&socket, &format!("step{step}"));
        steps.push(totals);
    }
    victim.finish();
    let run = tracer.wait().report();
    for to in 1..steps.len() {
        for from in 0..to {
            let marks = [from, to].map(|step| format!("step{step}"));
            let report = recording_report::read(&recording, &["--between", &marks[0], &marks[1]]);
            // The growth equals the victim's counts at the second mark, for the steps after the
            // first mark.
            let is_within = |name: &str| (from + 1..=to).any(|step| name == format!("step{step}"));
            let within = steps[to].sites.iter().filter(|site| is_within(&site.name)).map(|site| site.totals);
            assert_eq!((report.totals, &*report.metric), (within.sum(), "growth"), "between {marks:?}");
            let net = ["--metric", "net-growth", "--between", &marks[0], &marks[1]];
            let net = recording_report::read(&recording, &net).totals;
            assert_eq!(net, steps[to].totals - steps[from].totals, "between {marks:?}");
        }
    }
    // The last step before the exit has the most live bytes.
    let peak = recording_report::read(&recording, &["--peak"]);
    assert_eq!(peak.totals.live_bytes, steps.iter().map(|step| step.totals.live_bytes).max().unwrap());
    assert_equal(run, recording_report::read(&recording, &[]));
}

#[test]
fn report_of_a_killed_memtrace_has_the_names_of_the_files() {
    let scratch = Scratch::new();
    let recording = scratch.join("killed.memtrace");
    let (victim, totals) = killed_recording::record(&recording, wait_for);
    let report = recording_report::read(&recording, &[]);
    assert_eq!(report.totals, totals);
    assert!(report.notes.iter().any(|note| note.starts_with("the recording is not complete")), "{:?}", report.notes);
    assert_eq!(report.leaves(), [Some("work")]);
    victim.finish();
}

#[test]
fn unusable_recordings_and_options_are_refused() {
    let scratch = Scratch::new();
    let recording = scratch.join("run.memtrace");
    let code = |path: &Path, options: &[&str]| recording_report::run(path, options).status.code();
    Trace::command(["true"]).option("--record").option(&recording).run().assert_code(0);
    assert_eq!(code(&recording, &[]), Some(0));
    for options in
        [&["--by", "thread"][..], &["--older", "1s"], &["-m", "peak-bytes"], &["-m", "cold-bytes"], &["--at", "+1h"]]
    {
        assert_eq!(code(&recording, options), Some(2), "{options:?}");
    }
    let content = fs::read(&recording).unwrap();
    // The file is cut twice: by 4 KiB, and then to 5,000 bytes.
    let truncated = scratch.join("truncated.memtrace");
    fs::write(&truncated, &content[..content.len() - 4096]).unwrap();
    assert!(matches!(code(&truncated, &[]), Some(0 | 12 | 20)));
    fs::write(&truncated, &content[..5000]).unwrap();
    assert_eq!(code(&truncated, &[]), Some(12));
    let other = scratch.join("other.memtrace");
    fs::write(&other, "no database").unwrap();
    assert_eq!(code(&other, &[]), Some(12));
    assert_eq!(code(&scratch.join("missing"), &[]), Some(12));
}
