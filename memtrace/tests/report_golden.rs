//! Every format against a golden file, and against what must be true of it whatever the golden file says.
//!
//! A golden file is never made by a passing test: with `MEMTRACE_BLESS=1` the files are rewritten and the test fails, so
//! that they are looked at and the test is run again.

#[path = "report_golden/host.rs"]
mod host;
#[path = "report_golden/languages.rs"]
mod languages;
#[path = "report_golden/page.rs"]
mod page;
#[path = "report_golden/sample.rs"]
mod sample;
#[path = "report_golden/waits.rs"]
mod waits;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use host::{by_allocators, by_threads, host};
use languages::languages;
use memtrace::model::{EventClass, Metric, Profile, Root};
use memtrace::report::{Format, Options, write};
use quick_xml::events::Event;
use sample::sample;
use serde_json::Value;
use waits::{of_seconds, waits};

const SIX_NUMBERS: [&str; 6] = ["live_bytes", "live_count", "alloc_bytes", "alloc_count", "free_bytes", "free_count"];

fn options(metric: Metric) -> Options {
    Options { metric, by: Root::Process, top: 10, subject: String::from("pids 4711 (redis-server), 4712 <\u{1b}>") }
}

fn report(format: Format, profile: &Profile, options: &Options) -> String {
    let mut bytes = Vec::new();
    write(format, profile, options, &mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("reports are UTF-8")
}

fn sample_report(format: Format) -> String {
    report(format, &sample(), &options(Metric::LiveBytes))
}

fn json() -> Value {
    serde_json::from_str(&sample_report(Format::Json)).expect("the report is JSON")
}

#[track_caller]
#[expect(clippy::panic, reason = "it fails the test that calls it")]
fn assert_golden(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report").join(name);
    if std::env::var_os("MEMTRACE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, actual).expect("the golden file can be written");
        panic!("{name}: blessed; look at the difference and run again without MEMTRACE_BLESS");
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{name}: {error}; MEMTRACE_BLESS=1 writes golden files"));
    if expected == actual {
        return;
    }
    let (mut expected, mut actual) = (expected.split('\n'), actual.split('\n'));
    for line in 1.. {
        let (was, is) = (expected.next(), actual.next());
        if was != is {
            let shown = |line: Option<&str>| line.map_or_else(|| String::from("(the end)"), |line| format!("{line:?}"));
            panic!("{name}, line {line}:\n- {}\n+ {}\n", shown(was), shown(is));
        }
    }
}

/// The report without what is not this project's: the script that inferno puts into its pictures.
fn without_script(svg: &str) -> String {
    let start = svg.find("<script").expect("the picture has a script");
    let end = svg.find("</script>").expect("the script ends");
    format!("{}{}", &svg[..start], &svg[end..]).replace("><", ">\n<")
}

#[test]
fn the_flame_graph_is_as_it_was() {
    assert_golden("sample.svg", &without_script(&sample_report(Format::Svg)));
}

#[test]
fn the_folded_stacks_are_as_they_were() {
    assert_golden("sample.folded", &sample_report(Format::Folded));
}

#[test]
fn the_json_is_as_it_was() {
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let json = sample_report(Format::Json);
    assert_eq!(json.matches(&version).count(), 1);
    assert_golden("sample.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_text_is_as_it_was() {
    assert_golden("sample.txt", &sample_report(Format::Text));
}

#[test]
fn the_text_of_a_filter_by_age_is_as_it_was() {
    let profile = Profile { older: Some(Duration::from_secs(90)), ..sample() };
    assert_golden("older.txt", &report(Format::Text, &profile, &Options { top: 2, ..options(Metric::LiveCount) }));
}

#[test]
fn the_text_of_a_peak_is_as_it_was() {
    assert_golden("peak.txt", &report(Format::Text, &sample(), &Options { top: 2, ..options(Metric::PeakBytes) }));
}

#[test]
fn the_text_of_a_program_in_rust_and_cpp_is_as_it_was() {
    assert_golden("languages.txt", &report(Format::Text, &languages(), &options(Metric::LiveBytes)));
}

#[test]
fn the_text_of_many_processes_is_as_it_was() {
    assert_golden("host.txt", &report(Format::Text, &host(), &options(Metric::LiveBytes)));
}

#[test]
fn the_text_of_the_greatest_processes_and_the_rest_is_as_it_was() {
    let options = Options { top: 3, ..options(Metric::AllocCount) };
    assert_golden("host-top.txt", &report(Format::Text, &host(), &options));
}

#[test]
fn the_text_by_user_is_as_it_was() {
    let options = Options { by: Root::User, top: 3, ..options(Metric::LiveBytes) };
    assert_golden("host-by-user.txt", &report(Format::Text, &host(), &options));
}

#[test]
fn the_json_by_control_group_is_as_it_was() {
    let options = Options { by: Root::Cgroup, ..options(Metric::LiveBytes) };
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let json = report(Format::Json, &host(), &options);
    assert_golden("host-by-cgroup.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_folded_stacks_by_thread_are_as_they_were() {
    let options = Options { by: Root::Thread, ..options(Metric::LiveBytes) };
    assert_golden("host-by-thread.folded", &report(Format::Folded, &by_threads(), &options));
}

#[test]
fn the_text_by_allocator_is_as_it_was() {
    let options = Options { by: Root::Allocator, top: 4, ..options(Metric::LiveBytes) };
    assert_golden("host-by-allocator.txt", &report(Format::Text, &by_allocators(), &options));
}

#[test]
fn the_text_of_waits_for_memory_is_as_it_was() {
    assert_golden("waits.txt", &report(Format::Text, &waits(), &options(Metric::StallTime)));
}

#[test]
fn the_text_of_waits_by_control_group_is_as_it_was() {
    let options = Options { by: Root::Cgroup, ..options(Metric::StallCount) };
    assert_golden("waits-by-cgroup.txt", &report(Format::Text, &waits(), &options));
}

#[test]
fn the_json_of_waits_for_memory_is_as_it_was() {
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let json = report(Format::Json, &waits(), &options(Metric::StallTime));
    assert_golden("waits.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_folded_stacks_of_waits_are_as_they_were() {
    assert_golden("waits.folded", &report(Format::Folded, &waits(), &options(Metric::StallTime)));
}

#[test]
fn the_text_says_what_sustained_scanning_and_paging_mean() {
    let reading = |all, scanning, paging| {
        let text = report(Format::Text, &of_seconds(all, scanning, paging), &options(Metric::StallTime));
        let words = text.split_whitespace().skip_while(|word| *word != "Reading:").collect::<Vec<_>>().join(" ");
        words.split_once("control groups.").map_or(words.clone(), |(reading, _)| format!("{reading}control groups."))
    };
    assert!(reading(10, 5, 4).ends_with("so the working set is near the size of the limits of control groups."));
    assert!(reading(10, 5, 5).ends_with("so the working set is beyond the size of the limits of control groups."));
    assert!(reading(10, 4, 0).contains("memory was short now and then, not for long."));
    assert!(reading(10, 0, 0).contains("memory was not short."));
    assert!(reading(3, 3, 3).contains("3 seconds is too short to tell what is sustained; it takes 4 seconds."));
}

#[test]
fn no_line_is_longer_than_a_hundred_columns() {
    for (&by, &metric) in Root::ALL.iter().flat_map(|by| Metric::ALL.iter().map(move |metric| (by, metric))) {
        let text = report(Format::Text, &host(), &Options { by, ..options(metric) });
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{} by {}\n{text}", metric.name(), by.name());
    }
    for by in [Root::Process, Root::Cgroup] {
        let text = report(Format::Text, &waits(), &Options { by, ..options(Metric::StallTime) });
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn only_the_text_joins_and_folds() {
    let folded = report(Format::Folded, &languages(), &options(Metric::LiveBytes));
    assert_eq!(folded.matches("std::sys::backtrace::__rust_begin_short_backtrace").count(), 4);
    let json: Value = serde_json::from_str(&report(Format::Json, &languages(), &options(Metric::LiveBytes))).unwrap();
    let frames: Vec<_> =
        json["stacks"].as_array().unwrap().iter().map(|stack| stack["frames"].as_array().unwrap().len()).collect();
    assert_eq!(frames, [11, 11, 10, 10, 8, 3]);
}

#[test]
fn the_picture_of_an_empty_profile_is_as_it_was() {
    assert_golden("empty.svg", &report(Format::Svg, &Profile::default(), &options(Metric::LiveBytes)));
}

#[test]
fn the_text_of_an_empty_profile_is_as_it_was() {
    assert_golden("empty.txt", &report(Format::Text, &Profile::default(), &options(Metric::LiveBytes)));
}

#[test]
fn an_empty_profile_has_no_folded_stacks() {
    assert_eq!(report(Format::Folded, &Profile::default(), &options(Metric::LiveBytes)), "");
}

#[test]
fn equal_profiles_give_equal_bytes() {
    for &format in Format::ALL {
        for &metric in Metric::ALL {
            let first = report(format, &sample(), &options(metric));
            assert_eq!(first, report(format, &sample(), &options(metric)), "{} {}", format.name(), metric.name());
        }
    }
}

#[test]
fn every_picture_is_well_formed_and_as_wide_as_its_stacks() {
    for &metric in Metric::ALL {
        let profile = if metric.is_of(EventClass::Reclaim) { waits() } else { sample() };
        let svg = report(Format::Svg, &profile, &options(metric));
        let sum: u64 = profile.stacks.iter().map(|stack| metric.of(stack)).sum();
        assert_well_formed(&svg);
        assert!(svg.contains(&format!("total_samples=\"{sum}\"")), "{}", metric.name());
    }
    assert_well_formed(&report(Format::Svg, &Profile::default(), &options(Metric::PeakBytes)));
}

#[track_caller]
fn assert_well_formed(svg: &str) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    assert!(svg.chars().all(allowed), "characters that XML does not allow");
    let mut reader = quick_xml::Reader::from_str(svg);
    reader.config_mut().check_comments = true;
    let mut depth = 0;
    loop {
        match reader.read_event().expect("the picture is well-formed") {
            Event::Start(element) => {
                depth += 1;
                assert!(element.attributes().all(|attribute| attribute.is_ok()));
            }
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
}

#[test]
fn a_function_and_its_cold_sibling_are_each_drawn_once() {
    let svg = sample_report(Format::Svg);
    assert_eq!(svg.matches("<title>handle (1,507,328 bytes").count(), 1);
    assert_eq!(svg.matches("<title>handle.cold (131,072 bytes").count(), 1);
}

#[test]
fn a_picture_takes_sums_beyond_64_bits() {
    let mut profile = sample();
    for stack in &mut profile.stacks {
        stack.usage.live.bytes.0 = u64::MAX;
    }
    assert_well_formed(&report(Format::Svg, &profile, &options(Metric::LiveBytes)));
}

#[test]
fn folded_lines_are_sorted_distinct_and_add_up_whatever_the_names() {
    for &metric in Metric::ALL {
        let folded = report(Format::Folded, &sample(), &options(metric));
        let lines: Vec<(&str, u64)> = folded
            .lines()
            .map(|line| line.rsplit_once(' ').map(|(stack, value)| (stack, value.parse().unwrap())).unwrap())
            .collect();
        assert!(lines.is_sorted_by(|one, next| one.0 < next.0), "{folded}");
        assert!(folded.chars().all(|c| c == '\n' || !c.is_control()));
        let sum: u64 = sample().stacks.iter().map(|stack| metric.of(stack)).sum();
        assert_eq!(lines.iter().map(|(_, value)| value).sum::<u64>(), sum, "{}", metric.name());
        let drawn = sample().stacks.iter().filter(|stack| metric.of(stack) > 0).count();
        assert_eq!(lines.len(), drawn, "{}", metric.name());
    }
}

#[test]
fn equal_folded_stacks_of_two_processes_are_joined() {
    let mut profile = sample();
    profile.processes[2].comm = profile.processes[1].comm.clone();
    for stack in &mut profile.stacks {
        stack.frames = [].into();
    }
    let by_comm = Options { by: Root::Comm, ..options(Metric::AllocCount) };
    let folded = report(Format::Folded, &profile, &by_comm);
    let joined: Vec<_> = folded.lines().filter(|line| line.starts_with("redis-server;[stack empty]")).collect();
    assert_eq!(joined, ["redis-server;[stack empty] 1665"]);
}

#[test]
fn the_json_adds_up_from_stacks_to_processes_to_totals() {
    let json = json();
    let number = |value: &Value| value.as_u64().expect("a number");
    let processes = json["processes"].as_array().unwrap();
    let stacks = json["stacks"].as_array().unwrap();
    assert_eq!((processes.len(), stacks.len()), (3, 13));
    for key in SIX_NUMBERS {
        let sum: u64 = processes.iter().map(|process| number(&process["totals"][key])).sum();
        assert_eq!(number(&json["totals"][key]), sum, "{key}");
        for (index, process) in processes.iter().enumerate() {
            let of_process = stacks.iter().filter(|stack| stack["process"] == index);
            assert_eq!(number(&process["totals"][key]), of_process.map(|s| number(&s[key])).sum::<u64>(), "{key}");
        }
    }
    for process in processes {
        let [alloc, free, live] =
            ["alloc_bytes", "free_bytes", "live_bytes"].map(|key| number(&process["totals"][key]));
        assert_eq!(alloc, free + live + number(&process["discarded"]["bytes"]));
    }
    let unmatched: u64 = processes.iter().map(|process| number(&process["unmatched_frees"])).sum();
    assert_eq!(number(&json["unmatched_frees"]), unmatched);
    for stack in stacks {
        assert_eq!(stack["pid"], processes[stack["process"].as_u64().unwrap() as usize]["pid"]);
    }
}

#[test]
fn the_json_has_every_loss_and_shares_that_make_a_whole() {
    let json = json();
    let losses = json["losses"].as_object().unwrap();
    assert_eq!(losses.len(), memtrace::model::LossReason::COUNT);
    let occurred: Vec<_> = losses.iter().filter(|(_, count)| **count != 0).map(|(name, _)| name.as_str()).collect();
    assert_eq!(occurred, ["pending_stale", "ring_full_free"]);
    let shares = json["stack_quality"].as_object().unwrap();
    assert_eq!(shares.len(), memtrace::model::StackEnd::ALL.len());
    // Compared as text: serde_json reads a number only nearly as it was written.
    assert!(sample_report(Format::Json).contains(&format!("\"complete\":{},", 1631.0 / 1671.0)));
    let whole: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((whole - 1.0).abs() < 1e-12, "{whole}");
}

#[test]
fn every_field_of_the_json_is_documented() {
    fn fields(value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    names.insert(name.clone());
                    if name != "losses" {
                        fields(value, names);
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
            _ => {}
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut names = BTreeSet::new();
    fields(&json(), &mut names);
    for (profile, by) in [(by_threads(), Root::Thread), (by_allocators(), Root::Allocator), (waits(), Root::Process)] {
        let json = report(Format::Json, &profile, &Options { by, ..options(Metric::LiveBytes) });
        fields(&serde_json::from_str(&json).unwrap(), &mut names);
    }
    assert!(names.contains("thread_name") && names.contains("allocator"));
    assert!(names.contains("peak_rss_bytes") && names.contains("unnamed"));
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_json_keeps_names_as_they_are() {
    let json = json();
    let frames: Vec<&Value> = json["frames"].as_array().unwrap().iter().collect();
    let hostile = "evil;\"<b>&amp;\r\n]]>--\0\u{202e}";
    assert_eq!(frames.iter().filter(|frame| frame["name"] == hostile).count(), 1);
    for frame in frames {
        assert_eq!(frame["name"].is_null(), frame.get("unnamed").is_some(), "{frame}");
    }
}

#[test]
fn stacks_come_in_the_order_of_the_metric() {
    for &metric in Metric::ALL {
        let json: Value = serde_json::from_str(&report(Format::Json, &sample(), &options(metric))).unwrap();
        let key = metric.name().replace('-', "_");
        let value = |stack: &Value| stack[&key].as_u64().unwrap_or(0);
        assert!(json["stacks"].as_array().unwrap().is_sorted_by(|one, next| value(one) >= value(next)), "{key}");
        assert_eq!(json["metric"], metric.name());
    }
}

#[test]
fn the_text_steers_no_terminal_and_accuses_no_one() {
    for &metric in Metric::ALL {
        let text = report(Format::Text, &sample(), &options(metric));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(!text.to_lowercase().contains("leak"));
        assert!(text.lines().all(|line| line == line.trim_end()), "white space at the end of a line");
    }
}

#[test]
fn an_output_that_fails_is_an_error_in_every_format() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for &format in Format::ALL {
        let error = write(format, &sample(), &options(Metric::LiveBytes), &mut Full).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{}", format.name());
    }
}
