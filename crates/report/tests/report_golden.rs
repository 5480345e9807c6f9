//! Tests of every format against a golden file. Modules test the properties that hold for any golden file.

#[path = "report_golden/activity_sample.rs"]
mod activity_sample;
#[path = "report_golden/ended_groups.rs"]
mod ended_groups;
#[path = "report_golden/estimates.rs"]
mod estimates;
#[path = "report_golden/folded.rs"]
mod folded;
#[path = "report_golden/host.rs"]
mod host;
#[path = "report_golden/json.rs"]
mod json;
#[path = "report_golden/languages.rs"]
mod languages;
/// Tests of the long tier: browsers and other viewers read the formats.
#[path = "report_golden"]
mod long {
    pub(crate) mod html;
    mod html_activity;
    mod perfetto_size;
    pub(crate) mod viewers;
}
#[path = "report_golden/page.rs"]
mod page;
#[path = "report_golden/perfetto_accounts.rs"]
mod perfetto_accounts;
#[path = "report_golden/perfetto_activity.rs"]
mod perfetto_activity;
#[path = "report_golden/picture.rs"]
mod picture;
#[path = "report_golden/sample.rs"]
mod sample;
#[path = "report_golden/sampled.rs"]
mod sampled;
#[path = "report_golden/sampled_blocks.rs"]
mod sampled_blocks;
#[path = "report_golden/text.rs"]
mod text;
#[path = "report_golden/threads.rs"]
mod threads;
#[path = "report_golden/waits.rs"]
mod waits;

use std::path::PathBuf;
use std::time::Duration;

use harness::report::text;
use memtrace_model::{GroupBy, Metric, Profile, Quantity, RunFacts};
use memtrace_report::{Format, Options, write};

use activity_sample::{activity, with_activity};
use ended_groups::{build, demoted};
use host::{all_ended, by_allocators, by_threads, host};
use languages::languages;
use sample::{sample, with_touches};
use serde_json::Value;
use waits::waits;

fn options(metric: Metric) -> Options {
    Options {
        metric,
        by: GroupBy::Process,
        top: 10,
        all_stacks: false,
        subject: String::from("pids 4711 (redis-server), 4712 <\u{1b}>"),
    }
}

fn report(format: Format, profile: &Profile, options: &Options) -> String {
    let mut bytes = Vec::new();
    write(format, profile, options, &mut bytes).expect("a vector takes everything");
    text(bytes)
}

fn sample_report(format: Format) -> String {
    report(format, &sample(), &options(Metric::LiveBytes))
}

#[track_caller]
#[expect(clippy::panic, reason = "it fails the test that calls it")]
fn assert_golden(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
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

/// Returns the report without the script that inferno adds to its pictures.
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
fn the_text_of_cold_memory_is_as_it_was() {
    let options = Options { top: 2, ..options(Metric::ColdBytes) };
    assert_golden("cold.txt", &report(Format::Text, &with_touches(), &options));
    let json = report(Format::Json, &with_touches(), &options);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["touches"]["method"], &json["touches"]["duration_s"]), (&"idle".into(), &10.05.into()));
    let sum: u64 = with_touches().stacks.iter().map(|stack| stack.usage[Quantity::ColdBytes]).sum();
    assert_eq!(json["totals"]["cold_bytes"], sum);
}

#[test]
fn the_text_filtered_by_age_is_as_it_was() {
    let profile = Profile { run: RunFacts { older: Some(Duration::from_secs(90)), ..sample().run }, ..sample() };
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
fn the_text_of_ended_processes_is_as_it_was() {
    let profile = all_ended();
    let metric = profile.metric(None);
    assert_eq!(metric, Metric::ExitBytes);
    assert_golden("ended.txt", &report(Format::Text, &profile, &Options { top: 3, ..options(metric) }));
}

#[test]
fn the_text_of_groups_of_ended_processes_is_as_it_was() {
    assert_golden("groups.txt", &report(Format::Text, &build(), &options(Metric::AllocBytes)));
}

#[test]
fn the_folded_stacks_of_groups_are_as_they_were() {
    assert_golden("groups.folded", &report(Format::Folded, &build(), &options(Metric::AllocBytes)));
}

#[test]
fn the_json_of_groups_is_as_it_was() {
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let json = report(Format::Json, &build(), &options(Metric::AllocBytes));
    assert_golden("groups.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_text_of_demoted_processes_is_as_it_was() {
    assert_golden("demoted.txt", &report(Format::Text, &demoted(), &options(Metric::AllocBytes)));
}

#[test]
fn the_json_of_demoted_processes_is_as_it_was() {
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let json = report(Format::Json, &demoted(), &options(Metric::AllocBytes));
    assert_golden("demoted.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_text_of_the_largest_processes_is_as_it_was() {
    let options = Options { top: 3, ..options(Metric::AllocCount) };
    assert_golden("host-top.txt", &report(Format::Text, &host(), &options));
}

#[test]
fn the_text_by_user_is_as_it_was() {
    let options = Options { by: GroupBy::User, top: 3, ..options(Metric::LiveBytes) };
    assert_golden("host-by-user.txt", &report(Format::Text, &host(), &options));
}

#[test]
fn the_json_by_control_group_is_as_it_was() {
    let options = Options { by: GroupBy::Cgroup, ..options(Metric::LiveBytes) };
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let json = report(Format::Json, &host(), &options);
    assert_golden("host-by-cgroup.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_folded_stacks_by_thread_are_as_they_were() {
    let options = Options { by: GroupBy::Thread, ..options(Metric::LiveBytes) };
    assert_golden("host-by-thread.folded", &report(Format::Folded, &by_threads(), &options));
}

#[test]
fn the_text_by_allocator_is_as_it_was() {
    let options = Options { by: GroupBy::Allocator, top: 4, ..options(Metric::LiveBytes) };
    assert_golden("host-by-allocator.txt", &report(Format::Text, &by_allocators(), &options));
}

#[test]
fn the_text_of_waits_for_memory_is_as_it_was() {
    assert_golden("waits.txt", &report(Format::Text, &waits(), &options(Metric::StallTime)));
}

#[test]
fn the_text_of_waits_by_control_group_is_as_it_was() {
    let options = Options { by: GroupBy::Cgroup, ..options(Metric::StallCount) };
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
fn the_text_of_activity_is_as_it_was() {
    let options = Options { top: 3, ..options(Metric::LiveBytes) };
    assert_golden("activity.txt", &report(Format::Text, &with_activity(activity()), &options));
}

#[test]
fn only_the_text_joins_and_folds_stacks() {
    let folded = report(Format::Folded, &languages(), &options(Metric::LiveBytes));
    assert_eq!(folded.matches("std::sys::backtrace::__rust_begin_short_backtrace").count(), 4);
    let json: Value = serde_json::from_str(&report(Format::Json, &languages(), &options(Metric::LiveBytes))).unwrap();
    let frames: Vec<_> =
        json["stacks"].as_array().unwrap().iter().map(|stack| stack["frames"].as_array().unwrap().len()).collect();
    assert_eq!(frames, [11, 11, 10, 10, 8, 3]);
}

#[test]
fn the_flame_graph_of_an_empty_profile_is_as_it_was() {
    assert_golden("empty.svg", &report(Format::Svg, &Profile::default(), &options(Metric::LiveBytes)));
}

#[test]
fn the_text_of_an_empty_profile_is_as_it_was() {
    assert_golden("empty.txt", &report(Format::Text, &Profile::default(), &options(Metric::LiveBytes)));
}

#[test]
fn equal_profiles_give_equal_bytes() {
    for &format in Format::OF_STACKS {
        for metric in Metric::ALL {
            let first = report(format, &sample(), &options(metric));
            assert_eq!(first, report(format, &sample(), &options(metric)), "{} {}", format.name(), metric.name());
        }
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
    for &format in Format::OF_STACKS {
        let error = write(format, &sample(), &options(Metric::LiveBytes), &mut Full).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{}", format.name());
    }
}
