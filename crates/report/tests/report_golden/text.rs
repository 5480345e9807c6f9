//! Properties of the text report.

use memtrace_model::{Activity, GroupBy, Metric, Profile, RunFacts};
use memtrace_report::{Format, ListedSites, Options, TextLayout, write_text};

use super::activity_sample::{activity, with_activity};
use super::host::host;
use super::sample::sample;
use super::sampled::sampled;
use super::waits::{of_seconds, waits};
use super::{options, report};

#[test]
fn the_text_assesses_sustained_scanning_and_paging() {
    let assessment = |all, scanning, paging| {
        let text = report(Format::Text, &of_seconds(all, scanning, paging), &options(Metric::StallTime));
        let words = text.split_whitespace().skip_while(|word| *word != "Assessment:").collect::<Vec<_>>().join(" ");
        words.split_once(". ").map_or(words.clone(), |(assessment, _)| assessment.to_owned())
    };
    assert_eq!(assessment(10, 5, 4), "Assessment: the working set is about as large as the limits of control groups");
    assert_eq!(assessment(10, 5, 5), "Assessment: the working set is larger than the limits of control groups");
    assert_eq!(assessment(10, 4, 0), "Assessment: memory was short at times");
    assert_eq!(assessment(10, 0, 0), "Assessment: memory was not short");
    assert_eq!(assessment(3, 3, 3), "Assessment: none, since it needs 4 seconds of tracing");
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
    let profile =
        Profile { run: RunFacts { activity: with_activity(activity()).run.activity, ..host().run }, ..host() };
    let text = report(Format::Text, &profile, &options(Metric::LiveBytes));
    assert!(text.contains("Tasks and spans") && text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

fn in_layout(profile: &Profile, options: &Options, layout: TextLayout) -> String {
    let mut bytes = Vec::new();
    write_text(profile, options, layout, &mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("the report is UTF-8")
}

#[test]
fn the_text_adapts_to_the_width_of_a_terminal() {
    let profiles = [
        (sample(), Metric::LiveBytes),
        (host(), Metric::LiveBytes),
        (sampled(), Metric::LiveBytes),
        (waits(), Metric::StallTime),
        (with_activity(activity()), Metric::LiveBytes),
    ];
    for (profile, metric) in profiles {
        for columns in [80, 100, 132] {
            let layout = TextLayout { columns, sites: ListedSites::Fitting(60) };
            let text = in_layout(&profile, &options(metric), layout);
            let long = text.lines().find(|line| line.chars().count() > columns);
            assert_eq!(long, None, "{columns} columns\n{text}");
        }
    }
}

#[test]
fn the_text_fits_in_the_lines_of_a_terminal() {
    let shown = |lines| {
        let layout = TextLayout { columns: 80, sites: ListedSites::Fitting(lines) };
        let text = in_layout(&sample(), &options(Metric::LiveBytes), layout);
        let sites = text.lines().filter(|line| line.contains("%  ")).count();
        (text.lines().count() <= lines, sites)
    };
    assert_eq!(shown(10), (false, 1), "the totals and the largest site are always there");
    let sites = [60, 80, 200].map(shown);
    assert!(sites.iter().all(|(fits, _)| *fits), "{sites:?}");
    assert!(sites[0].1 < sites[1].1 && sites[1].1 < sites[2].1, "{sites:?}");
    // Two of the eleven sites have less than 1 %.
    assert_eq!(sites[2].1, 9);
}

#[test]
fn the_text_begins_and_ends_with_the_totals() {
    let text = in_layout(&host(), &options(Metric::LiveBytes), TextLayout { columns: 80, sites: ListedSites::Large });
    assert_eq!(text.lines().nth(2), Some("  live          1.88 GiB in 20,225,926 blocks"));
    let last = "Total: live 1.88 GiB in 20,225,926 blocks, at exit 2.00 KiB, allocated 1.88 GiB.";
    assert_eq!((text.lines().next_back(), last.len()), (Some(last), 80));
}

#[test]
fn the_text_says_that_no_activity_was_recorded() {
    let text = |activity| report(Format::Text, &with_activity(activity), &options(Metric::LiveBytes));
    let none = "no task, span or wait was recorded";
    assert!(text(Activity::default()).contains(none));
    assert!(
        !text(activity()).contains(none)
            && !report(Format::Text, &sample(), &options(Metric::LiveBytes)).contains(none)
    );
    let without_bytes = text(Activity { counts_bytes: false, ..activity() });
    assert!(text(activity()).contains("CPU TIME  ALLOCATED") && !without_bytes.contains("CPU TIME  ALLOCATED"));
}

#[test]
fn the_text_has_no_control_characters_and_no_leaks() {
    for (&metric, profile) in
        Metric::ALL.iter().flat_map(|metric| [(metric, sample()), (metric, with_activity(activity()))])
    {
        let text = report(Format::Text, &profile, &options(metric));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(!text.to_lowercase().contains("leak"));
        assert!(text.lines().all(|line| line == line.trim_end()), "white space at the end of a line");
    }
}
