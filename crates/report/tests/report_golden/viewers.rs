//! Tests of the formats of other tools. These tools read the files, and their sums must equal the
//! sums of the JSON report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::Scratch;
use memtrace_model::{Amount, Bytes, Comm, GroupBy, Metric, Profile, Quantities, Quantity, ThreadsInterval};
use memtrace_report::{Format, Options, ThreadTrace, write};
use serde_json::{Value, json};

use crate::host::{all_ended, by_allocators, by_threads, host};
use crate::languages::languages;
use crate::sample::{sample, with_touches};
use crate::sampled::sampled;
use crate::threads;
use crate::waits::waits;
use crate::{build, options, report};

/// Folder of the packages that `cargo xtask setup --long` installs.
fn viewers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/viewers")
}

fn packages() -> PathBuf {
    viewers().join("node_modules")
}

/// Returns profiles of blocks and pages, with names.
fn profiles() -> Vec<(&'static str, Profile)> {
    vec![
        ("sample", sample()),
        ("touches", with_touches()),
        ("host", host()),
        ("ended", all_ended()),
        ("groups", build()),
        ("threads", by_threads()),
        ("allocators", by_allocators()),
        ("languages", languages()),
        ("pages", sampled()),
    ]
}

fn drawn(profile: &Profile) -> Options {
    options(profile.metric(None))
}

fn json_report(profile: &Profile) -> Value {
    serde_json::from_str(&report(Format::Json, profile, &drawn(profile))).expect("JSON")
}

/// Returns a number of the totals; 0 if there is none.
fn total(json: &Value, name: &str) -> u64 {
    json["totals"][name].as_u64().unwrap_or_default()
}

/// Writes a report into a file and returns its path.
pub(crate) fn file(scratch: &Scratch, name: &str, format: Format, profile: &Profile) -> PathBuf {
    let path = scratch.path(&format!("{name}.{}", format.extension()));
    let mut bytes = Vec::new();
    write(format, profile, &drawn(profile), &mut bytes).expect("a vector takes everything");
    std::fs::write(&path, bytes).expect("the scratch directory is writable");
    path
}

/// Runs a viewer, and returns its standard output.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().expect("`cargo xtask setup --long` has installed the viewer");
    let errors = String::from_utf8_lossy(&output.stderr);
    // heaptrack_print continues after errors in a file.
    let is_read = output.status.success() && !errors.contains("failed to parse") && !errors.contains("out of bounds");
    assert!(is_read, "{command:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the contents of a profile as pprof prints them.
fn pprof_raw(scratch: &Scratch, name: &str, profile: &Profile) -> String {
    let path = file(scratch, name, Format::Pprof, profile);
    output(Command::new("go").args(["tool", "pprof", "-raw"]).arg(path).env("HOME", scratch.path("home")))
}

#[test]
fn pprof_reads_the_totals() {
    let scratch = Scratch::new();
    for (name, profile) in profiles().into_iter().chain([("waits", waits())]) {
        let raw = pprof_raw(&scratch, name, &profile);
        let mut lines = raw.lines().skip_while(|line| *line != "Samples:").skip(1);
        let types: Vec<&str> = lines.next().expect("types").split(' ').collect();
        let mut sums = vec![0_i64; types.len()];
        for line in lines.take_while(|line| *line != "Locations") {
            // Rows of labels are indented too.
            let Some((values, _)) = line.split_once(": ").filter(|(values, _)| !values.contains('[')) else { continue };
            let values = values.split_whitespace().map(str::parse::<i64>);
            let Ok(values) = values.collect::<Result<Vec<_>, _>>() else { continue };
            assert_eq!(values.len(), types.len(), "{line}");
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        let json = json_report(&profile);
        let metric = json["metric"].as_str().expect("a metric");
        assert!(types.iter().any(|name| name.ends_with("[dflt]")), "{name}: no default for {metric} in {types:?}");
        for (kind, sum) in types.iter().zip(sums) {
            let kind = kind.trim_end_matches("[dflt]");
            let metric =
                Metric::ALL.into_iter().find(|metric| kind.split('/').next() == Some(metric.facts().sample_type));
            let metric = metric.unwrap_or_else(|| panic!("{name}: unknown type {kind}"));
            let expected = match metric {
                Metric::PeakBytes => profile.stacks.iter().map(|stack| stack.usage[Quantity::AtPeakBytes]).sum(),
                metric => total(&json, metric.quantity().facts().name),
            };
            assert_eq!(sum, expected.cast_signed(), "{name}: {kind}");
        }
    }
}

#[test]
fn pprof_reads_labels_mappings_and_inlined_functions() {
    let scratch = Scratch::new();
    let raw = |name: &str, profile: &Profile| pprof_raw(&scratch, name, profile);
    let threads = by_threads();
    let text = raw("threads", &threads);
    let names: Vec<_> = threads.processes.iter().flat_map(|process| process.thread_names.values()).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(text.contains(&format!("thread:[{name}]")), "{name}: {text}");
    }
    assert!(text.contains("tid:["), "{text}");
    for allocator in by_allocators().run.allocators.values() {
        assert!(raw("allocators", &by_allocators()).contains(&format!("allocator:[{allocator}]")), "{allocator}");
    }
    let sample = sample();
    let text = raw("sample", &sample);
    for object in sample.frames.iter().filter_map(|frame| frame.object.as_ref()) {
        let build_id = object.build_id.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(text.contains(&format!("{} {build_id}", object.path.display())), "{object:?}: {text}");
    }
    let inlined = sample.frames.iter().filter(|frame| frame.inlined).count();
    let locations = text.lines().skip_while(|line| *line != "Locations").take_while(|line| *line != "Mappings");
    // Further functions of a location have lines without a number.
    let further = locations.skip(1).filter(|line| line.starts_with("          ")).count();
    assert_eq!((inlined, further), (1, 1), "{text}");
}

#[test]
fn heaptrack_reads_the_totals() {
    let scratch = Scratch::new();
    for (name, profile) in profiles() {
        let path = file(&scratch, name, Format::Heaptrack, &profile);
        let folded = scratch.path("folded");
        let sum = |cost: &str| {
            let mut command = Command::new("heaptrack_print");
            command.args(["--flamegraph-cost-type", cost, "--print-flamegraph"]).arg(&folded).arg(&path);
            output(&mut command);
            let text = std::fs::read_to_string(&folded).expect("heaptrack_print has written it");
            let values =
                text.lines().map(|line| line.rsplit_once(' ').expect("a value").1.parse::<u64>().expect("a number"));
            values.sum::<u64>()
        };
        let json = json_report(&profile);
        let held_bytes = total(&json, "live_bytes") + total(&json, "exit_bytes");
        assert_eq!(sum("allocations"), total(&json, "alloc_count"), "{name}");
        assert_eq!(sum("leaked"), held_bytes, "{name}");
        assert_eq!(sum("temporary"), total(&json, "temporary_count"), "{name}");
    }
}

#[test]
fn firefox_profiler_reads_the_totals() {
    let scratch = Scratch::new();
    let viewer = |arguments: &[&str]| {
        let mut command = Command::new(packages().join("node/bin/node"));
        command.arg(packages().join("@firefox-devtools/profiler-cli/dist/profiler-cli.js")).args(arguments);
        command.env("PROFILER_CLI_SESSION_DIR", scratch.path("home")).env("PROFILER_CLI_NO_SYMBOLICATE", "1");
        command
    };
    for (name, profile) in profiles() {
        let path = file(&scratch, name, Format::Firefox, &profile);
        output(&mut viewer(&["load", path.to_str().expect("UTF-8")]));
        let sum = |strategy: &str| -> u64 {
            let of_thread = |thread: usize| -> u64 {
                let thread = format!("t-{thread}");
                let options =
                    ["thread", "functions", "--json", "--limit", "0", "--thread", &thread, "--strategy", strategy];
                let mut command = viewer(&options);
                let no_data = format!("Strategy '{strategy}' has no data in {thread}");
                let printed = command.output().expect("it runs");
                if String::from_utf8_lossy(&printed.stderr).contains(&no_data) {
                    return 0;
                }
                let functions: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
                let functions = functions["functions"].as_array().expect("a list");
                functions.iter().map(|function| function["selfSamples"].as_i64().expect("bytes").unsigned_abs()).sum()
            };
            (0..profile.processes.len()).map(of_thread).sum()
        };
        let json = json_report(&profile);
        let held = total(&json, "live_bytes") + total(&json, "exit_bytes");
        assert_eq!(sum("native-retained-allocations"), held, "{name}");
        assert_eq!(sum("native-allocations"), total(&json, "alloc_bytes"), "{name}");
        output(&mut viewer(&["stop"]));
    }
}

/// Returns the contents of a trace for Perfetto.
pub(crate) fn read_perfetto(path: &Path) -> Value {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report_golden/read_perfetto.py");
    let mut python = Command::new("python3");
    serde_json::from_str(&output(python.env("PYTHONPATH", viewers().join("python")).arg(reader).arg(path)))
        .expect("JSON")
}

#[test]
fn perfetto_messages_have_the_totals() {
    let scratch = Scratch::new();
    for (name, profile) in profiles() {
        let read = read_perfetto(&file(&scratch, name, Format::Perfetto, &profile));
        let sums: Vec<u64> = serde_json::from_value(read["sums"].clone()).expect("sums");
        let json = json_report(&profile);
        let held = |unit: &str| total(&json, &format!("live_{unit}")) + total(&json, &format!("exit_{unit}"));
        let [bytes, count] = ["bytes", "count"].map(|unit| total(&json, &format!("alloc_{unit}")));
        assert_eq!([sums[0], sums[2]], [bytes, count], "{name}: allocated");
        assert_eq!([sums[0] - sums[1], sums[2] - sums[3]], [held("bytes"), held("count")], "{name}: held");
    }
}

#[test]
fn perfetto_counters_are_those_of_the_timeline() {
    const SECOND: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;
    let scratch = Scratch::new();
    let read = read_perfetto(&file(&scratch, "timeline", Format::Perfetto, &super::html::with_timeline()));
    let counters = &read["counters"]["redis-server"];
    let live: Vec<_> = (1..=4).map(|at| [at * SECOND, at * MIB]).collect();
    assert_eq!(counters["live"], json!(live));
    assert_eq!(counters["RSS, anonymous"], json!([[SECOND, 5 * MIB]]));
    let rates: Vec<_> = (0..4).map(|at| [at * SECOND, 2 * MIB]).chain([[4 * SECOND, 0]]).collect();
    assert_eq!(counters["allocated per second"], json!(rates));
    assert_eq!(
        read["counters"]["machine"]["memory pressure, some"],
        json!([[SECOND, 0], [2 * SECOND, 25], [3 * SECOND, 0]])
    );
    let end = 30_250_000_000_u64;
    assert_eq!(read["instants"].as_array().map(Vec::len), Some(2));
    assert_eq!(read["instants"][0], json!([2 * SECOND, "marks", "loaded <b>"]));
    assert_eq!((&read["instants"][1][0], &read["instants"][1][1]), (&json!(end), &json!("losses")));
    assert!(read["instants"][1][2].as_str().is_some_and(|text| text.starts_with("lost: ")), "{read}");
    let mut ended = all_ended();
    ended.processes[0].ended_after = Some(Duration::from_secs(2));
    ended.oom_kills = waits().oom_kills;
    let kills = ended.oom_kills.len();
    let read = read_perfetto(&file(&scratch, "ended", Format::Perfetto, &ended));
    let instants = read["instants"].as_array().expect("instants");
    let comm = ended.processes[0].comm.raw();
    assert_eq!(
        instants.iter().filter(|instant| **instant == json!([2 * SECOND, comm, "exit"])).count(),
        1,
        "{instants:?}"
    );
    assert_eq!(instants.iter().filter(|instant| instant[1] == "OOM kills").count(), kills.max(1), "{instants:?}");
}

#[test]
fn perfetto_has_heap_profiles_of_earlier_moments() {
    const SECOND: u64 = 1_000_000_000;
    let scratch = Scratch::new();
    let mut profile = all_ended();
    profile.run.duration = Duration::from_secs(9);
    let mut first = profile.clone();
    first.stacks.truncate(1);
    let halves = [(Duration::from_secs(3), first.clone()), (Duration::from_secs(6), profile.clone())];
    let read = read_perfetto(&file(
        &scratch,
        "moments",
        Format::Perfetto,
        &Profile { earlier: halves.into(), ..profile.clone() },
    ));
    let sums = |name, profile| read_perfetto(&file(&scratch, name, Format::Perfetto, profile))["sums"].clone();
    let (some, all) = (sums("some", &first), sums("all", &profile));
    assert_ne!(some, all);
    assert_eq!(read["profiles"], json!([[3 * SECOND, some], [6 * SECOND, all], [9 * SECOND, all]]));
}

/// Returns the contents of the trace of intervals of the thread monitor.
fn read_thread_trace(intervals: &[ThreadsInterval]) -> Value {
    let scratch = Scratch::new();
    let path = scratch.path("threads.pftrace");
    let mut bytes = Vec::new();
    let mut trace = ThreadTrace::start(&mut bytes, threads::START).expect("a vector takes everything");
    intervals.iter().for_each(|interval| trace.add(interval).expect("a vector takes everything"));
    std::fs::write(&path, bytes).expect("the scratch directory is writable");
    read_perfetto(&path)
}

#[test]
fn process_with_the_pid_of_an_ended_one_has_a_perfetto_track() {
    const SECOND: u64 = 1_000_000_000;
    let mut intervals = threads::intervals();
    let mut later = intervals[0].clone();
    later.span = Duration::from_secs(4)..Duration::from_secs(5);
    later.processes[0].start_ns += 61 * SECOND;
    later.processes[0].comm = Comm::from("valkey-server");
    let net = later.processes[0].usage.net();
    intervals[3].processes[0].has_exited = true;
    intervals.push(later);
    let read = read_thread_trace(&intervals);
    let counters = &read["counters"];
    assert_eq!(counters["valkey-server"]["net bytes"], json!([[5 * SECOND, net]]));
    let ended = counters["redis-server"]["allocated per second"].as_array().and_then(|values| values.last());
    assert_eq!(ended, Some(&json!([4 * SECOND, 0])));
    let instants = read["instants"].as_array().expect("instants");
    assert!(instants.contains(&json!([4 * SECOND, "redis-server", "exit"])), "{instants:?}");
}

#[test]
fn perfetto_tracks_of_threads_have_their_usage() {
    const SECOND: u64 = 1_000_000_000;
    let read = read_thread_trace(&threads::intervals());
    let counters = &read["counters"];
    let kib = |values: [u64; 4], first: u64| -> Value {
        (first..).zip(values).map(|(second, value)| [second * SECOND, value << 10]).collect()
    };
    let thread = &counters["thread redis-server"];
    assert_eq!(thread["allocated per second"], kib([900, 1000, 1100, 1200], 0));
    assert_eq!(thread["net bytes"], kib([600, 1300, 2100, 3000], 1));
    // A value is written only when it changes.
    let [[at, share]] = serde_json::from_value::<[[f64; 2]; 1]>(thread["processor time"].clone()).expect("one value");
    assert!(at.abs() < f64::EPSILON && (share - 61.0).abs() < 1e-6, "{share}");
    let net: i64 = threads::intervals().iter().map(|interval| interval.processes[0].usage.net()).sum();
    assert_eq!(
        counters["redis-server"]["net bytes"].as_array().and_then(|values| values.last()),
        Some(&json!([4 * SECOND, net]))
    );
    assert_eq!(
        counters["redis-server"]["RSS, anonymous"],
        json!((0..4).map(|at| [(at + 1) * SECOND, (200 + 20 * at) << 20]).collect::<Vec<_>>())
    );
    // No allocator of cron is known.
    assert_eq!((&counters["cron"]["net bytes"], counters["cron"]["threads"].is_array()), (&Value::Null, true));
    assert_eq!(counters["machine"]["available memory"], json!([[SECOND, 6_u64 << 30]]));
    assert_eq!(counters["machine"]["pressure, I/O"], json!([[0, 0.3]]));
    // The thread ends in the third second.
    let ended: Vec<_> = counters.as_object().expect("tracks").keys().filter(|name| name.contains("b\"")).collect();
    let [ended] = ended[..] else { unreachable!("{counters}") };
    assert_eq!(counters[ended]["allocated per second"], json!([[0, 80 << 10], [2 * SECOND, 0]]));
    let instants = read["instants"].as_array().expect("instants");
    for expected in [
        json!([900_000_000, ended, "start"]),
        json!([3 * SECOND, ended, "end"]),
        json!([2_250_000_000_u64, "marks", "flush <all>"]),
    ] {
        assert!(instants.contains(&expected), "{expected}: {instants:?}");
    }
}

#[test]
fn speedscope_files_follow_the_schema_with_the_totals() {
    const VALIDATE: &str =
        "const [schema, data] = process.argv.slice(1).map((path) => JSON.parse(require('fs').readFileSync(path)));
        const validate = new (require('ajv'))({strict: false}).compile(schema);
        if (!validate(data)) { throw new Error(JSON.stringify(validate.errors)); }";
    let scratch = Scratch::new();
    let schema = packages().join("speedscope/dist/release/file-format-schema.json");
    for (name, profile) in profiles().into_iter().chain([("waits", waits())]) {
        let path = file(&scratch, name, Format::Speedscope, &profile);
        let mut node = Command::new(packages().join("node/bin/node"));
        output(node.env("NODE_PATH", packages()).args(["-e", VALIDATE]).arg(&schema).arg(&path));
        let written: Value = serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
        let json = json_report(&profile);
        let mut sums = BTreeMap::new();
        for sampled in written["profiles"].as_array().expect("profiles") {
            let weights = sampled["weights"].as_array().expect("weights");
            let sum: u64 = weights.iter().map(|weight| weight.as_u64().expect("a number")).sum();
            assert_eq!(sampled["endValue"], sum);
            sums.insert(sampled["name"].as_str().expect("a name"), sum);
        }
        let mut compared = 0;
        for (metric, field) in [
            (Metric::LiveBytes, "live_bytes"),
            (Metric::LiveCount, "live_count"),
            (Metric::ExitBytes, "exit_bytes"),
            (Metric::AllocBytes, "alloc_bytes"),
            (Metric::AllocCount, "alloc_count"),
            (Metric::Temporary, "temporary_count"),
            (Metric::StallTime, "stall_ns"),
            (Metric::StallCount, "stall_count"),
        ] {
            if let Some(sum) = sums.get(metric.title(profile.run.class).as_str()) {
                assert_eq!(*sum, total(&json, field), "{name}: {field}");
                compared += 1;
            }
        }
        assert!(compared >= 2, "{name}: {sums:?}");
    }
}

/// Returns a window of a recording. The first stack has decreased. The second stack is a sum of merged stacks that
/// separate stacks have replaced, so its amounts are negative.
fn window() -> Profile {
    let mut profile = sample();
    let second = Duration::from_secs(1);
    profile.run.window = Some(second * 60..second * 90);
    let negative = Amount { bytes: Bytes(0_u64.wrapping_sub(1000)), count: 0_u64.wrapping_sub(10) };
    profile.stacks[0].usage = profile.stacks[0].usage.with_amount(Quantity::LiveBytes, negative);
    profile.stacks[1].usage = Quantities::ZERO
        .with_amount(Quantity::LiveBytes, negative)
        .with_amount(Quantity::AllocBytes, negative)
        .with_amount(Quantity::TemporaryBytes, negative);
    profile.processes.iter_mut().for_each(|process| process.total = Quantities::default());
    for stack in &profile.stacks {
        profile.processes[stack.process].total += stack.usage;
    }
    profile
}

#[test]
fn decreases_in_a_window_are_no_large_numbers() {
    let scratch = Scratch::new();
    let options = options(Metric::NetGrowth);
    let profile = window();
    let increases = |of: fn(&Quantities) -> Amount| -> [u64; 2] {
        let amounts = profile.stacks.iter().map(|stack| of(&stack.usage));
        let increase = |number: u64| number.cast_signed().max(0).cast_unsigned();
        amounts.fold([0, 0], |sum, amount| [sum[0] + increase(amount.bytes.0), sum[1] + increase(amount.count)])
    };
    let (live, alloc) = (increases(Quantities::live), increases(Quantities::alloc));
    let speedscope: Value = serde_json::from_str(&report(Format::Speedscope, &profile, &options)).expect("JSON");
    let ends: Vec<_> =
        speedscope["profiles"].as_array().expect("a list").iter().map(|one| one["endValue"].clone()).collect();
    assert_eq!(ends[..3], [json!(live[0]), json!(alloc[0]), json!(alloc[1])]);
    let read = read_perfetto(&file(&scratch, "window", Format::Perfetto, &profile));
    let sums: Vec<u64> = serde_json::from_value(read["sums"].clone()).expect("sums");
    assert_eq!([sums[0] - sums[1], sums[2] - sums[3]], live);
    assert!(sums[0] >= alloc[0] && sums[0] < alloc[0] + live[0], "{sums:?}");
    // pprof has signed values, and a default type.
    let raw = pprof_raw(&scratch, "window", &profile);
    assert!(raw.contains("inuse_space/bytes[dflt]") && raw.contains(" -1000 "), "{raw}");
}

#[test]
fn groups_are_the_outermost_frames() {
    let profile = by_threads();
    let options = Options { by: GroupBy::Thread, ..options(Metric::LiveBytes) };
    let written: Value = serde_json::from_str(&report(Format::Speedscope, &profile, &options)).expect("JSON");
    let frames = written["shared"]["frames"].as_array().expect("frames");
    let first = |sample: &Value| frames[sample[0].as_u64().expect("an index") as usize]["name"].clone();
    let samples = written["profiles"][0]["samples"].as_array().expect("samples");
    let roots: Vec<_> = samples.iter().map(first).collect();
    let folded = report(Format::Folded, &profile, &options);
    for root in roots {
        let root = root.as_str().expect("a name").replace(';', ":");
        assert!(folded.lines().any(|line| line.starts_with(&format!("{root};"))), "{root}: {folded}");
    }
}
