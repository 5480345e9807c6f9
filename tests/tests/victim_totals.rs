//! Tests of the victims' own totals against the calls that `count_shim` records. They need no root.

use std::process::Command;

use memtrace_tests::{CountShim, Scratch, Victim, victim};

fn assert_matches_count_shim(name: &str, arguments: &[&str]) {
    let scratch = Scratch::new();
    let counts = CountShim::create(&scratch);
    let mut victim = Victim::start(Command::new(victim::path(name)).args(arguments).envs(counts.environment()));
    counts.begin();
    let expected = victim.work();
    let recorded = counts.read();
    assert_eq!(recorded.totals, expected.totals);
    assert_eq!(recorded.unmatched_frees, expected.unmatched_frees);
    victim.finish();
}

#[test]
fn exact_totals_match_count_shim() {
    assert_matches_count_shim("exact", &[]);
}

#[test]
fn realloc_totals_match_count_shim() {
    assert_matches_count_shim("realloc", &[]);
}

#[test]
fn aligned_totals_match_count_shim() {
    assert_matches_count_shim("aligned", &[]);
}

#[test]
fn threads_totals_match_count_shim() {
    assert_matches_count_shim("threads", &[]);
}

#[test]
fn flood_totals_match_count_shim() {
    assert_matches_count_shim("flood", &["5000"]);
}

#[test]
fn steady_totals_match_count_shim() {
    assert_matches_count_shim("steady", &["100"]);
}

#[test]
fn peak_totals_match_count_shim() {
    assert_matches_count_shim("peak", &[]);
}

#[test]
fn sizes_totals_without_limits_match_count_shim() {
    assert_matches_count_shim("sizes", &["0", "18446744073709551615"]);
}

#[test]
fn widgets_totals_match_count_shim() {
    assert_matches_count_shim("widgets", &[]);
}

#[test]
fn rust_vec_totals_match_count_shim() {
    assert_matches_count_shim("victim-rust-vec", &[]);
}
