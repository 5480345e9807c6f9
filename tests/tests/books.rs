//! The victims' books are themselves compared with a second source, the calls that `count_shim` sees. No root needed.

use std::process::Command;

use memtrace_tests::{Counts, Scratch, Victim, victim};

fn agrees(name: &str, arguments: &[&str]) {
    let scratch = Scratch::new();
    let counts = Counts::create(&scratch);
    let mut victim = Victim::start(Command::new(victim::path(name)).args(arguments).envs(counts.environment()));
    counts.begin();
    let books = victim.work();
    let seen = counts.read();
    assert_eq!(seen.numbers, books.numbers);
    assert_eq!(seen.unmatched_frees, books.unmatched_frees);
    victim.finish();
}

#[test]
fn exact_totals_match_count_shim() {
    agrees("exact", &[]);
}

#[test]
fn realloc_totals_match_count_shim() {
    agrees("realloc", &[]);
}

#[test]
fn aligned_totals_match_count_shim() {
    agrees("aligned", &[]);
}

#[test]
fn threads_totals_match_count_shim() {
    agrees("threads", &[]);
}

#[test]
fn flood_totals_match_count_shim() {
    agrees("flood", &["5000"]);
}

#[test]
fn steady_totals_match_count_shim() {
    agrees("steady", &["100"]);
}

#[test]
fn peak_totals_match_count_shim() {
    agrees("peak", &[]);
}

#[test]
fn sizes_totals_without_limits_match_count_shim() {
    agrees("sizes", &["0", "18446744073709551615"]);
}

#[test]
fn widgets_totals_match_count_shim() {
    agrees("widgets", &[]);
}

#[test]
fn rust_vec_totals_match_count_shim() {
    agrees("victim-rust-vec", &[]);
}
