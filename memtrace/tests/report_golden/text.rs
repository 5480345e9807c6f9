//! Properties of the text report.

use memtrace::model::{GroupBy, Metric};
use memtrace::report::{Format, Options};

use super::host::host;
use super::sample::sample;
use super::waits::{of_seconds, waits};
use super::{options, report};

#[test]
fn the_text_assesses_sustained_scanning_and_paging() {
    let reading = |all, scanning, paging| {
        let text = report(Format::Text, &of_seconds(all, scanning, paging), &options(Metric::StallTime));
        let words = text.split_whitespace().skip_while(|word| *word != "Assessment:").collect::<Vec<_>>().join(" ");
        words.split_once("control groups.").map_or(words.clone(), |(reading, _)| format!("{reading}control groups."))
    };
    assert!(reading(10, 5, 4).ends_with("so the working set is near the size of the limits of control groups."));
    assert!(reading(10, 5, 5).ends_with("so the working set is beyond the size of the limits of control groups."));
    assert!(reading(10, 4, 0).contains("memory was short at times, but not for long."));
    assert!(reading(10, 0, 0).contains("memory was not short."));
    assert!(reading(3, 3, 3).contains("none; 3 seconds of tracing are too few, it takes 4."));
}

#[test]
fn no_line_is_longer_than_a_hundred_columns() {
    for (&by, &metric) in GroupBy::ALL.iter().flat_map(|by| Metric::ALL.iter().map(move |metric| (by, metric))) {
        let text = report(Format::Text, &host(), &Options { by, ..options(metric) });
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{} by {}\n{text}", metric.name(), by.name());
    }
    for by in [GroupBy::Process, GroupBy::Cgroup] {
        let text = report(Format::Text, &waits(), &Options { by, ..options(Metric::StallTime) });
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn the_text_has_no_control_characters_and_no_leaks() {
    for &metric in Metric::ALL {
        let text = report(Format::Text, &sample(), &options(metric));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(!text.to_lowercase().contains("leak"));
        assert!(text.lines().all(|line| line == line.trim_end()), "white space at the end of a line");
    }
}
