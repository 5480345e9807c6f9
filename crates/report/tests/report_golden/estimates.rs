//! Errors of estimates from sampled pages, in every format that has them.

use memtrace_model::{GroupBy, Metric, Profile, RunFacts};
use memtrace_report::{Format, Options};
use serde_json::Value;

use super::json::MEMORY_NUMBERS;
use super::sampled::{by_memory, sampled};
use super::{assert_golden, options, report};

#[test]
fn the_text_of_sampled_pages_is_as_it_was() {
    assert_golden("sampled.txt", &report(Format::Text, &sampled(), &options(Metric::LiveBytes)));
}

#[test]
fn the_text_of_sampled_pages_by_memory_is_as_it_was() {
    let options = Options { by: GroupBy::Memory, top: 2, ..options(Metric::AllocCount) };
    assert_golden("sampled-by-memory.txt", &report(Format::Text, &by_memory(), &options));
}

#[test]
fn the_json_of_sampled_pages_is_as_it_was() {
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let json = report(Format::Json, &sampled(), &Options { by: GroupBy::User, ..options(Metric::LiveBytes) });
    assert_golden("sampled.json", &json.replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_flame_graph_states_its_errors() {
    let svg = report(Format::Svg, &sampled(), &options(Metric::LiveBytes)).replace("><", ">\n<");
    let subtitle = svg.lines().find(|line| line.contains("from one page in 64")).unwrap();
    assert!(subtitle.contains("1.61 GiB ± "), "{subtitle}");
    assert!(subtitle.contains(" (a frame of a tenth: ± "), "{subtitle}");
}

#[test]
fn every_estimate_in_the_json_has_an_error() {
    let json: Value = serde_json::from_str(&report(Format::Json, &sampled(), &options(Metric::LiveBytes))).unwrap();
    let lists = ["processes", "roots", "stacks"].map(|key| json[key].as_array().unwrap());
    let mut looked_at = 0;
    for fields in lists.into_iter().flatten().chain([&json]) {
        let fields = fields.get("totals").unwrap_or(fields);
        // Exit amounts are left out: only blocks can be held at exit, and blocks are not sampled.
        for key in MEMORY_NUMBERS.iter().filter(|key| !key.starts_with("exit")) {
            let (what, unit) = key.split_once('_').unwrap();
            assert!(fields[format!("{what}_error_{unit}")].is_u64(), "{key} of {fields}");
            looked_at += 1;
        }
    }
    assert_eq!(looked_at, 6 * (7 + 7 + 14 + 1));
}

#[test]
fn counts_have_no_error() {
    let counted = Profile { run: RunFacts { page_sample: 1, ..sampled().run }, ..sampled() };
    for &format in Format::OF_STACKS {
        let report = report(format, &counted, &options(Metric::LiveBytes));
        assert!(!report.contains('±') && !report.contains("_error"), "{report}");
    }
}
