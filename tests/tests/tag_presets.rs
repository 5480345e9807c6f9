//! Presets of `--tag-from` for small copies of MariaDB and skynet, compared with the victims' own counters.

use memtrace_tests::totals_by_tag::{self, assert_equal, roots, traced};
use memtrace_tests::{Outcome, Trace, victim};

fn assert_mariadb(counted: &str, preset: &str, tags: usize) {
    assert_equal("mariadb", &[counted, "5000"], &["--tag-from", preset], tags);
}

#[test]
fn classes_of_mariadb_have_the_totals_of_the_victim() {
    // The classes, memory that is not instrumented, and blocks of malloc.
    assert_mariadb("class", "mariadb:class", 42);
}

#[test]
fn without_the_performance_schema_all_classes_are_one() {
    let (expected, outcome) = traced("mariadb", &["off", "5000"], &["--tag-from", "mariadb:class"]);
    assert_eq!(expected.len(), 2);
    assert_eq!(roots(&outcome.report()), expected);
    let words = outcome.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("performance_schema is off in the server"), "{}", outcome.stderr);
}

#[test]
fn connections_of_mariadb_have_the_totals_of_the_victim() {
    assert_mariadb("connection", "mariadb:connection", 8);
    assert_mariadb("host", "mariadb:host", 3);
    assert_mariadb("user", "mariadb:user", 4);
}

#[test]
fn services_of_skynet_have_the_totals_of_the_victim() {
    assert_equal("skynet", &["20000"], &["--tag-from", "skynet"], 14);
}

#[test]
fn accounts_have_the_names_of_classes() {
    let options = ["--tag-from", "mariadb:class", "--by", "tag"];
    let (expected, accounts) = totals_by_tag::accounts("mariadb", &["class", "2000"], &options);
    for (name, totals) in expected {
        accounts.assert_equals(&[&name], &totals);
    }
}

#[test]
fn presets_are_refused_for_other_programs() {
    let refused = |preset: &str| -> Outcome {
        let victim = victim::start_with("modules", &["set", "1"]);
        Trace::victim(&victim).options(&["--tag-from", preset]).run()
    };
    let words = ["the preset mariadb:user does not fit", "its build ID", "was not tested", "10.11.19 (Debian 12"];
    refused("mariadb:user").assert_refused(2, &words);
    let words = ["the preset skynet does not fit", "it has no function skynet_monitor_trigger"];
    refused("skynet").assert_refused(2, &words);
}
