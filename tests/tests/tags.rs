//! Groups by rules for tags, and by the object that called the allocator.

use std::collections::BTreeMap;
use std::fs;

use memtrace_tests::{Report, Scratch, Totals, Trace, VictimTotals, recording_report, victim};

/// Rules for two of the three call sites of `victims/exact.c`.
const RULES: &str = r#"
[[rule]]
tag = "first"
function = "site_a"

[[rule]]
tag = "second"
function = "site_?"
object = "exact"
source = "*/exact.c"
"#;

/// Rule for all stacks with `main`.
const OTHER_RULES: &str = "
[[rule]]
tag = 'all'
function = 'main'";

/// Returns the totals of all groups, by name.
fn roots(report: &Report) -> BTreeMap<&str, Totals> {
    report.assert_consistent();
    report.roots.iter().map(|root| (root.name.as_str(), root.totals)).collect()
}

/// Returns the totals of the victim's function `name`.
fn site(expected: &VictimTotals, name: &str) -> Totals {
    expected.sites.iter().filter(|site| site.name == name).map(|site| site.totals).sum()
}

#[test]
fn tags_have_the_totals_of_their_functions() {
    let scratch = Scratch::new();
    let (rules, other, recording) =
        (scratch.path("tags.toml"), scratch.path("other.toml"), scratch.path("run.memtrace"));
    fs::write(&rules, RULES).expect("the file can be written");
    fs::write(&other, OTHER_RULES).expect("the file can be written");
    let mut victim = victim::start("exact");
    let trace = Trace::victim(&victim).option("--tags").option(&rules).option("--record").option(&recording);
    let tracer = trace.start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();

    let report = outcome.report();
    report.assert_equals(&expected);
    let first = site(&expected, "site_a");
    let second = site(&expected, "site_b") + site(&expected, "site_c");
    let tags = BTreeMap::from([("first", first), ("second", second), ("[no tag]", expected.totals - first - second)]);
    assert_eq!(roots(&report), tags);

    // The recording has the rules of the run, and other rules can replace them.
    assert_eq!(roots(&recording_report::read(&recording, &[])), tags);
    let other = other.to_str().expect("the path is text");
    let by_other = recording_report::read(&recording, &["--tags", other]);
    assert_eq!(roots(&by_other), BTreeMap::from([("all", expected.totals)]));
    let by_object = recording_report::read(&recording, &["--by", "object"]);
    let program = victim::path("exact").display().to_string();
    assert_eq!(roots(&by_object), BTreeMap::from([(program.as_str(), expected.totals)]));
}

#[test]
fn rules_match_the_names_of_threads() {
    let scratch = Scratch::new();
    let (rules, recording) = (scratch.path("tags.toml"), scratch.path("run.memtrace"));
    // The C library and the loader allocate for new threads.
    let text = "
        [[rule]]
        tag = 'C library'
        object = 'libc.so*'
        [[rule]]
        tag = 'loader'
        object = 'ld-linux*'
        [[rule]]
        tag = 'named'
        function = 'run'
        thread = 'by creator'
        [[rule]]
        tag = 'others'
        function = 'run'";
    fs::write(&rules, text).expect("the file can be written");
    let mut victim = victim::start("named_threads");
    let trace = Trace::victim(&victim).option("--tags").option(&rules).option("--record").option(&recording);
    let tracer = trace.start();
    victim.process().write_line("");
    // Names of threads, each with the live bytes of the thread. Each name contains the number of the thread.
    let expected: Vec<(String, u64)> = victim.read_json();
    let report = tracer.stop().report();
    victim.finish();
    let sum = |is_named| {
        let threads = expected.iter().filter(|(name, _)| name.starts_with("by creator ") == is_named);
        threads.map(|(_, bytes)| bytes).sum::<u64>()
    };
    assert!(sum(true) > 0 && sum(false) > sum(true), "{expected:?}");
    for report in [&report, &recording_report::read(&recording, &[])] {
        let live: BTreeMap<_, _> = roots(report).into_iter().map(|(name, totals)| (name, totals.live_bytes)).collect();
        assert_eq!((live["named"], live["others"]), (sum(true), sum(false)), "{live:?}");
    }
}

#[test]
fn recordings_without_threads_refuse_rules_for_threads() {
    let scratch = Scratch::new();
    let (rules, recording) = (scratch.path("tags.toml"), scratch.path("run.memtrace"));
    fs::write(&rules, "[[rule]]\ntag = 'a'\nthread = 'b'").expect("the file can be written");
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).option("--record").option(&recording).start();
    victim.work();
    let _outcome = tracer.stop();
    victim.finish();
    for (options, message) in [
        (&["--tags", rules.to_str().expect("the path is text")][..], "the rules for tags name threads"),
        (&["--by", "tag"][..], "the recording has no rules for tags that"),
    ] {
        let output = recording_report::run(&recording, options);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(message), "{stderr}");
    }
}
